//! Layout: boxes do not overlap and lines go to the right.

use proptest::prelude::*;

use crate::graph::layers::Graph;
use crate::graph::layout::{Layout, Rectangle, Scene, layout};

/// Needs of each box: boxes with lower numbers.
fn needs(most: usize) -> impl Strategy<Value = Vec<Vec<usize>>> {
    let of_box = |count: usize| {
        (0..count)
            .map(|task| proptest::collection::btree_set(0..task.max(1), 0..4.min(task + 1)).prop_map(Vec::from_iter))
            .collect::<Vec<_>>()
    };
    (1..most).prop_flat_map(of_box).prop_map(|mut needs: Vec<Vec<usize>>| {
        needs[0].clear();
        needs
    })
}

fn scene(needs: &[Vec<usize>], epochs: usize) -> Scene {
    let count = needs.len();
    let arrows = needs.iter().enumerate().flat_map(|(to, needs)| needs.iter().map(move |from| (*from, to))).collect();
    Scene {
        widths: (0..count).map(|task| [120.0, 180.0, 260.0][task % 3]).collect(),
        graph: Graph { epochs: (0..count).map(|task| task * epochs.max(1) / count).collect(), arrows },
        has_bands: epochs > 0,
    }
}

fn overlap(left: &Rectangle, right: &Rectangle) -> bool {
    left.x < right.x + right.width
        && right.x < left.x + left.width
        && left.y < right.y + right.height
        && right.y < left.y + left.height
}

/// Asserts all invariants of a layout.
fn expect_sound(scene: &Scene, layout: &Layout) {
    for (number, rectangle) in layout.boxes.iter().enumerate() {
        assert!(rectangle.x >= 0.0 && rectangle.y >= 0.0 && rectangle.width >= scene.widths[number]);
        assert!(rectangle.x + rectangle.width <= layout.width && rectangle.y + rectangle.height <= layout.height);
        assert!(layout.boxes[..number].iter().all(|other| !overlap(rectangle, other)), "box {number} overlaps another");
    }
    assert_eq!(layout.routes.len(), scene.graph.arrows.len());
    for route in &layout.routes {
        let segments = route.segments.iter().flat_map(|segment| [segment.left, segment.right]);
        let stops: Vec<f64> = [route.start.0].into_iter().chain(segments).chain([route.end.0]).collect();
        assert!(stops.windows(2).all(|pair| pair[0] < pair[1]), "a line goes to the left: {stops:?}");
        for segment in &route.segments {
            let line =
                Rectangle { x: segment.left, y: segment.y - 1.0, width: segment.right - segment.left, height: 2.0 };
            assert!(layout.boxes.iter().all(|rectangle| !overlap(rectangle, &line)), "a line runs behind a box");
        }
        let (from, to) = scene.graph.arrows[route.arrow];
        assert_eq!(route.start.0, layout.boxes[from].x + layout.boxes[from].width);
        assert_eq!(route.end.0, layout.boxes[to].x);
    }
    assert!(layout.bands.windows(2).all(|pair| pair[0].x + pair[0].width < pair[1].x), "bands overlap");
    for (number, rectangle) in layout.boxes.iter().enumerate().filter(|_| scene.has_bands) {
        let band = layout.bands.iter().find(|band| band.epoch == scene.graph.epochs[number]).unwrap();
        assert!(
            band.x < rectangle.x && rectangle.x + rectangle.width < band.x + band.width,
            "box {number} is outside its band"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_layout_is_sound(needs in needs(60), epochs in 0_usize..4) {
        let scene = scene(&needs, epochs);
        expect_sound(&scene, &layout(&scene));
    }
}

/// Deterministic pseudo-random needs.
fn scattered(count: usize, most: usize) -> Vec<Vec<usize>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut number = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % u64::try_from(below.max(1)).unwrap()).unwrap()
    };
    (0..count).map(|task| (0..number(most + 1)).filter(|_| task > 0).map(|_| number(task)).collect()).collect()
}

#[test]
fn two_thousand_boxes_are_laid_out() {
    let mut needs = scattered(2_000, 3);
    for needs in &mut needs {
        needs.sort_unstable();
        needs.dedup();
    }
    let scene = scene(&needs, 0);
    expect_sound(&scene, &layout(&scene));
}

#[test]
fn a_chain_is_straight() {
    let needs: Vec<Vec<usize>> = (0..50).map(|task: usize| task.checked_sub(1).into_iter().collect()).collect();
    let layout = layout(&scene(&needs, 0));
    assert!(layout.boxes.iter().all(|rectangle| rectangle.y == layout.boxes[0].y));
}

#[test]
fn a_fan_out_is_centred_on_its_source() {
    let needs: Vec<Vec<usize>> = (0..6).map(|task| if task == 0 { vec![] } else { vec![0] }).collect();
    let layout = layout(&scene(&needs, 0));
    assert_eq!(layout.boxes[0].y, layout.boxes[3].y);
}

#[test]
fn very_many_long_lines_are_bounded() {
    // Every task of a long chain also needs the first: the lines would cross two million columns.
    let needs: Vec<Vec<usize>> = (0..2_000)
        .map(|task| match task {
            0 => vec![],
            1 => vec![0],
            _ => vec![0, task - 1],
        })
        .collect();
    let scene = scene(&needs, 0);
    let layout = layout(&scene);
    assert_eq!(layout.routes.len(), 3_997);
    assert!(layout.routes.iter().map(|route| route.segments.len()).sum::<usize>() <= 20_000);
    assert!(layout.routes.iter().all(|route| route.start.0 < route.end.0));
}

#[test]
fn an_empty_scene_has_an_empty_layout() {
    let layout = layout(&Scene { widths: vec![], graph: Graph { epochs: vec![], arrows: vec![] }, has_bands: true });
    assert!(layout.boxes.is_empty() && layout.width.is_finite() && layout.height == 0.0);
}
