//! The outline of one source file: its functions, attributes and module declarations.

use super::mask::{Comment, is_word, mask};

/// Attributes that make a function a test, by the last segment of their path: `#[tokio::test]` matches.
const TEST_ATTRIBUTES: [&str; 4] = ["test", "proptest", "rstest", "test_case"];
/// Keywords of items that can have a doc comment, other than functions and modules.
const ITEM_KEYWORDS: [&str; 7] = ["struct", "enum", "trait", "type", "const", "static", "union"];

#[derive(Default)]
pub struct Outline {
    pub functions: Vec<Function>,
    pub attributes: Vec<Attribute>,
    pub declarations: Vec<Declaration>,
    pub items: Vec<Item>,
    pub comments: Vec<Comment>,
}

#[derive(Debug)]
pub struct Function {
    pub name: String,
    /// Enclosing inline modules, outermost first.
    pub modules: Vec<String>,
    pub first_line: usize,
    pub last_line: usize,
    /// Has a test attribute and is not nested in another function.
    pub is_test: bool,
}

/// Text between `#[` and `]`, including literals.
pub struct Attribute {
    pub line: usize,
    pub text: String,
}

/// `mod name;`: a module in its own file.
#[derive(Debug, PartialEq, Eq)]
pub struct Declaration {
    pub name: String,
    pub modules: Vec<String>,
    /// The file named by `#[path = "…"]`.
    pub path: Option<String>,
}

/// A named item.
pub struct Item {
    pub name: String,
    pub modules: Vec<String>,
    pub line: usize,
}

pub fn outline(source: &str) -> Outline {
    let masked = mask(source);
    let mut reader = Reader {
        raw: source.chars().collect(),
        code: masked.code,
        at: 0,
        line: 1,
        groups: 0,
        scopes: Vec::new(),
        next_scope: None,
        pending: Pending::default(),
        found: Outline { comments: masked.comments, ..Outline::default() },
    };
    reader.read();
    reader.found
}

enum Scope {
    Module(String),
    Function(usize),
    Other,
}

/// Properties of the next item, from its attributes.
#[derive(Default)]
struct Pending {
    is_test: bool,
    path: Option<String>,
}

struct Reader {
    raw: Vec<char>,
    code: Vec<char>,
    at: usize,
    line: usize,
    /// Number of open `(` and `[`.
    groups: usize,
    scopes: Vec<Scope>,
    /// The scope that the next `{` opens, provided this number of groups is open there.
    next_scope: Option<(Scope, usize)>,
    pending: Pending,
    found: Outline,
}

impl Reader {
    fn read(&mut self) {
        while let Some(&character) = self.code.get(self.at) {
            match character {
                '#' => self.attribute(),
                _ if is_word(character) => self.word(),
                _ => {
                    self.punctuation(character);
                    self.at += 1;
                }
            }
        }
    }

    fn punctuation(&mut self, character: char) {
        match character {
            '\n' => self.line += 1,
            '(' | '[' => self.groups += 1,
            ')' | ']' => self.groups = self.groups.saturating_sub(1),
            '{' => {
                self.pending = Pending::default();
                let opened = self.next_scope.take_if(|(_, groups)| *groups == self.groups);
                self.scopes.push(opened.map_or(Scope::Other, |(scope, _)| scope));
            }
            '}' => {
                self.pending = Pending::default();
                if let Some(Scope::Function(index)) = self.scopes.pop() {
                    self.found.functions[index].last_line = self.line;
                }
            }
            ';' => {
                self.pending = Pending::default();
                // A `;` in an array type does not end a signature.
                self.next_scope.take_if(|(_, groups)| *groups == self.groups);
            }
            _ => {}
        }
    }

    fn word(&mut self) {
        let word = self.take_word();
        match word.as_str() {
            "fn" => self.function(),
            "mod" => self.module(),
            _ if ITEM_KEYWORDS.contains(&word.as_str()) => {
                if let Some(name) = self.following_name() {
                    self.item(name);
                }
            }
            _ => {}
        }
    }

    fn function(&mut self) {
        // `fn(u8)` is a type, `fn $name` is part of a macro.
        let Some(name) = self.following_name() else { return };
        let nested = self.scopes.iter().any(|scope| matches!(scope, Scope::Function(_)));
        let pending = std::mem::take(&mut self.pending);
        self.item(name.clone());
        self.next_scope = Some((Scope::Function(self.found.functions.len()), self.groups));
        self.found.functions.push(Function {
            name,
            modules: self.modules(),
            first_line: self.line,
            last_line: self.line,
            is_test: pending.is_test && !nested,
        });
    }

    fn module(&mut self) {
        let Some(name) = self.following_name() else { return };
        let pending = std::mem::take(&mut self.pending);
        self.item(name.clone());
        self.skip_space();
        if self.code.get(self.at) == Some(&';') {
            self.found.declarations.push(Declaration { name, modules: self.modules(), path: pending.path });
        } else {
            self.next_scope = Some((Scope::Module(name), self.groups));
        }
    }

    fn attribute(&mut self) {
        let line = self.line;
        self.at += 1;
        let inner = self.code.get(self.at) == Some(&'!');
        self.at += usize::from(inner);
        if self.code.get(self.at) != Some(&'[') {
            return;
        }
        let start = self.at + 1;
        let mut depth = 0;
        while let Some(&character) = self.code.get(self.at) {
            self.at += 1;
            match character {
                '[' => depth += 1,
                ']' => depth -= 1,
                '\n' => self.line += 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        let text: String = self.raw[start..self.at.saturating_sub(1).max(start)].iter().collect();
        if !inner {
            let path = text.split(|character: char| !is_word(character) && character != ':').next().unwrap_or_default();
            let last = path.rsplit("::").next().unwrap_or_default();
            self.pending.is_test |= TEST_ATTRIBUTES.contains(&last);
            if path == "path" {
                self.pending.path = text.split('"').nth(1).map(str::to_owned);
            }
        }
        self.found.attributes.push(Attribute { line, text });
    }

    fn item(&mut self, name: String) {
        self.found.items.push(Item { name, modules: self.modules(), line: self.line });
    }

    fn modules(&self) -> Vec<String> {
        let name = |scope: &Scope| match scope {
            Scope::Module(name) => Some(name.clone()),
            Scope::Function(_) | Scope::Other => None,
        };
        self.scopes.iter().filter_map(name).collect()
    }

    fn following_name(&mut self) -> Option<String> {
        self.skip_space();
        self.code.get(self.at).is_some_and(|character| is_word(*character)).then(|| self.take_word())
    }

    fn skip_space(&mut self) {
        while let Some(character) = self.code.get(self.at).filter(|character| character.is_whitespace()) {
            self.line += usize::from(*character == '\n');
            self.at += 1;
        }
    }

    fn take_word(&mut self) -> String {
        let rest = &self.code[self.at..];
        let word: String = rest.iter().take_while(|character| is_word(**character)).collect();
        self.at += word.chars().count();
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(source: &str) -> Vec<(String, usize, usize, bool)> {
        let found = outline(source).functions.into_iter();
        found.map(|f| ([f.modules, vec![f.name]].concat().join("::"), f.first_line, f.last_line, f.is_test)).collect()
    }

    #[test]
    fn functions_have_a_first_and_a_last_line() {
        let source = "fn a(x: [u8; 2]) -> u8 {\n  if x { 1 } else { '}' }\n}\ntrait T { fn b(&self); }\n";
        assert_eq!(functions(source), [("a".into(), 1, 3, false), ("b".into(), 4, 4, false)]);
    }

    #[test]
    fn tests_are_recognised_by_their_attributes() {
        let source = "mod tests {\n#[test]\n#[ignore = \"long\"]\nfn a() {}\n#[tokio::test(flavor = \"x\")]\nasync fn b() {}\n\
                      fn helper() {}\n#[test]\nconst X: u8 = 1;\nfn not_a_test() {}\n}";
        let tests: Vec<_> = functions(source).into_iter().filter(|function| function.3).map(|f| f.0).collect();
        assert_eq!(tests, ["tests::a", "tests::b"]);
    }

    #[test]
    fn tests_inside_a_proptest_macro_count() {
        let source = "proptest! {\n  #![proptest_config(x)]\n  #[test]\n  fn a(x in v.prop_map(|x| { x })) {\n  }\n}";
        assert_eq!(functions(source), [("a".into(), 4, 5, true)]);
    }

    #[test]
    fn tests_inside_functions_and_macros_do_not_count() {
        assert_eq!(functions("fn a() { #[test] fn b() {} }").iter().filter(|function| function.3).count(), 0);
        assert_eq!(functions("macro_rules! m { ($n:ident) => { #[test] fn $n() {} } }").len(), 0);
    }

    #[test]
    fn module_declarations_have_enclosing_modules_and_paths() {
        let found =
            outline("mod a;\nmod b { mod c; }\n#[path = \"x/y.rs\"]\npub mod d;\nfn f(x: fn(u8)) {}").declarations;
        let declaration = |name: &str, modules: &[&str], path: Option<&str>| Declaration {
            name: name.into(),
            modules: modules.iter().map(ToString::to_string).collect(),
            path: path.map(Into::into),
        };
        let wanted =
            [declaration("a", &[], None), declaration("c", &["b"], None), declaration("d", &[], Some("x/y.rs"))];
        assert_eq!(found, wanted);
    }
}
