//! Headers by which a client sends a request again without executing it twice.

/// Request: the client's name of a request, 32 hexadecimal digits. A request that is sent again under the same id gets
/// the first answer. For requests whose body is absent or JSON of at most [`RESENT_BODY_BYTES_MAX`]; ignored otherwise.
pub const REQUEST_ID: &str = "outlast-request-id";

/// Response: the answer is that of an earlier request with the same id.
pub const REPLAYED: &str = "outlast-replayed";

/// Response: node and incarnation of the server. Another value than before means that the server has restarted and has
/// forgotten the answers to earlier requests. Absent while the server starts.
pub const GENERATION: &str = "outlast-generation";

/// Request: refused with `other_generation`, unexecuted, unless this is the generation of the server.
pub const IF_GENERATION: &str = "outlast-if-generation";

/// Limit of the body of a request with an id.
pub const RESENT_BODY_BYTES_MAX: usize = 1024 * 1024;

/// How long the answer to a request with an id is kept.
pub const ANSWERS_KEPT_SECS: u64 = 300;
