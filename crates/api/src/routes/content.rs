//! Blobs and workers.

use super::{OCTETS, Routes, bytes};
use crate::openapi::Method;
use crate::{BlobList, BlobView, ManifestSpec, MissingView, UploadView, WorkerDetailView, WorkerView};

pub(super) fn add(routes: &mut Routes) {
    routes.tag("blobs");
    routes
        .post("/v1/blobs", "create_blob", "Upload content of unknown hash.")
        .description("The same content is the same blob. The content is streamed, up to the server's limit.")
        .body_as(OCTETS, bytes())
        .responds::<BlobView>(201, "The blob is durable.");
    let missing = routes.post("/v1/blobs/missing", "list_missing_blobs", "List the given blobs that are missing.");
    missing
        .body::<BlobList>()
        .responds::<MissingView>(200, "The missing blobs. The others are kept for at least an hour.");
    routes
        .add(Method::Put, "/v1/blobs/{id}", "upload_blob", "Upload a blob, whole or in pieces.")
        .header("Content-Range", "`bytes a-b/total` of a piece; absent for the whole blob. Pieces are sent in order. After an interruption, get the progress and continue there.")
        .body_as(OCTETS, bytes())
        .responds::<UploadView>(201, "The blob is complete, verified and durable.")
        .responds::<UploadView>(200, "The upload is incomplete, or the blob existed before.");
    routes
        .get("/v1/blobs/{id}", "get_blob", "Download a blob. The content is verified.")
        .header("Range", "A part: `bytes=a-b`, `bytes=a-` or `bytes=-n`.")
        .responds_as(200, "The content.", vec![(OCTETS, bytes())])
        .responds_as(206, "The requested part.", vec![(OCTETS, bytes())]);
    let head = routes.add(Method::Head, "/v1/blobs/{id}", "head_blob", "Check whether a blob exists, and its size.");
    head.responds_empty(200, "The blob exists.");
    let progress = routes.get("/v1/blobs/{id}/upload", "get_blob_upload", "Get the progress of an upload.");
    progress.responds::<UploadView>(200, "The progress; `done` for an existing blob.");

    routes.tag("workers");
    routes
        .post("/v1/workers", "register_worker", "Register a worker. Its blobs must exist.")
        .description("The id is the hash of the manifest: a registered worker never changes.")
        .body::<ManifestSpec>()
        .responds::<WorkerView>(201, "The worker is registered and durable. Idempotent.");
    let list = routes.get("/v1/workers", "list_workers", "List workers by name and version.");
    list.paged().responds_page::<WorkerView>("A page.");
    let all = routes.get("/v1/workers/all", "list_worker_details", "List workers with their files.");
    all.paged().responds_page::<WorkerDetailView>("A page.");
    let show = routes.get("/v1/workers/{id}", "get_worker", "Get a worker with its files.");
    show.responds::<WorkerDetailView>(200, "The worker.");
    let remove =
        routes.delete("/v1/workers/{id}", "delete_worker", "Delete a worker. Jobs that use it fail from then on.");
    remove.responds_empty(204, "Deleted.");
}
