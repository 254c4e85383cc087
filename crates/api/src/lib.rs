//! The HTTP API as types: requests, views and problem documents, shared by server, client and command line.
//!
//! [`routes`] lists all operations, and [`openapi`] builds the OpenAPI document from them and from the schemas of the
//! types. Doc comments of the types are the descriptions in the document.

mod audit;
mod change;
mod content;
mod governance;
pub mod headers;
mod job;
mod node;
pub mod openapi;
mod page;
mod problem;
mod queue;
pub mod routes;
mod schedule;
mod task;
pub mod visibility;
mod why;
mod workflow;

pub use audit::{
    AuditEntryView, AuditHeadView, AuditReportView, BrokenView, CheckpointView, ExportedCheckpoint, ExportedEntry,
    ExportedHead, ExportedLine, ShardAuditView, VerifiedCheckpointView,
};
pub use change::{ChangeKind, ChangeView};
pub use content::{
    BlobList, BlobView, FunctionView, ManifestSpec, MissingView, UploadView, WorkerDetailView, WorkerFileView,
    WorkerView,
};
pub use governance::{
    ApprovalDecisionView, ApprovalDetailView, ApprovalRequest, ApprovalView, CheckView, ConstraintsView,
    DeadLetterDetailView, DeadLetterView, DecisionView, OriginalView, OutputDecisionView, PolicyView, PurgedView,
    RejectedMessageView, RuleVerdictView, RulesView, TenantLimitsView, TenantView,
};
pub use job::{
    AcceptedView, AttemptView, AwaitedView, BatchItem, BatchOrSubmitView, BatchRefusal, BatchSpec, BatchView,
    HistoryView, JobView, LogPieceView, StateView, SubmitBody, SubmitView,
};
pub use node::{
    CapacityView, CordonNode, CordonView, CreateJoinToken, DrainNode, HealthView, JoinTokenView, LoadView, MoveSession,
    NewJoinTokenView, NodeEventView, NodeView, ProtectionView, SessionMove, SessionView,
};
pub use page::Page;
pub use problem::{Problem, ProblemKind};
pub use queue::{QueueSpec, QueueView};
pub use schedule::{ScheduleStart, ScheduleView};
pub use task::{CompensationView, ProgressView, TaskKind, TaskRefView, TaskView};
pub use visibility::{digest_as_text, digest_of_text, is_hidden, is_withheld};
pub use why::{PlacedView, PlacementView, RunnerWhyView, WaitsForView, WhyView};
pub use workflow::{
    CancelWorkflow, DiagnosticView, FromScheduleView, OriginView, ParentView, ProgressReport, ReasonView,
    RerunWorkflow, RollbackView, SignalledView, TallyView, TaskKeyView, UsageView, ValidView, WorkflowEventView,
    WorkflowHistoryView, WorkflowStart, WorkflowView,
};
