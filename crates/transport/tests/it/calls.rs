//! Objects, calls, and requests of the control node.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use transport::{Refusal, RefusalKind, RequestError};

use crate::support::{Control, soon, whole};

#[tokio::test]
async fn objects_are_written_and_read_from_an_offset() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, _peer) = control.connect(&member).await;
    let content: Bytes = (0..5_000_000u32).map(|number| number as u8).collect();
    let parts = stream::iter([content.slice(..7), content.slice(7..)].map(Ok)).boxed();
    let stored = soon(connected.requests.put_object("blob", "a".into(), parts)).await.unwrap();
    assert_eq!(stored, "5000000");
    let read = soon(connected.requests.get_object("blob", "a".into(), 1234)).await.unwrap();
    assert!(whole(read).await == content[1234..]);
    let Err(error) = soon(connected.requests.get_object("blob", "b".into(), 0)).await else { panic!("found") };
    assert_eq!(error, RequestError::Refused(Refusal::new(RefusalKind::NotFound, "no such object")));
}

#[tokio::test]
async fn an_incomplete_object_is_not_stored() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, _peer) = control.connect(&member).await;
    let broken = Refusal::new(RefusalKind::Failed, "the disk is broken");
    let parts = stream::iter([Ok("half".into()), Err(broken.clone())]).boxed();
    let error = soon(connected.requests.put_object("blob", "a".into(), parts)).await.unwrap_err();
    assert_eq!(error, RequestError::Refused(broken));
    assert!(control.service.objects.lock().is_empty());
    // The connection is still usable.
    let parts = stream::iter([Ok("whole".into())]).boxed();
    soon(connected.requests.put_object("blob", "b".into(), parts)).await.unwrap();
    assert_eq!(control.service.objects.lock().len(), 1);
}

#[tokio::test]
async fn an_answer_that_breaks_is_not_taken_for_complete() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, _peer) = control.connect(&member).await;
    let mut content = soon(connected.requests.call("breaks", "part".into())).await.unwrap();
    assert_eq!(soon(content.next()).await.unwrap().unwrap(), "part");
    let error = soon(content.next()).await.unwrap().unwrap_err();
    assert_eq!(error, RequestError::Refused(Refusal::new(RefusalKind::Failed, "a disk failed")));
}

#[tokio::test]
async fn the_control_node_asks_a_connected_node() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, peer) = control.connect(&member).await;
    let patience = Duration::from_secs(20);
    let body = Bytes::from(vec![3; 3_000_000]);
    let mut answer = soon(peer.requests.call("echo", body.clone(), patience)).await.unwrap();
    let mut received = Vec::new();
    while let Some(part) = soon(answer.next()).await {
        received.extend_from_slice(&part.unwrap());
    }
    assert!(received == body);

    let mut refused = soon(peer.requests.call("unknown", Bytes::new(), patience)).await.unwrap();
    assert_eq!(soon(refused.next()).await.unwrap().unwrap_err().kind(), RefusalKind::NotFound);

    let Err(late) = soon(peer.requests.call("never", Bytes::new(), Duration::from_millis(50))).await else {
        panic!("answered")
    };
    assert!(late.text().contains("did not answer `never` in time"), "{late}");

    // An endless answer that is dropped delays nothing else.
    let mut endless = soon(peer.requests.call("endless", Bytes::new(), patience)).await.unwrap();
    soon(endless.next()).await.unwrap().unwrap();
    let mut again = soon(peer.requests.call("echo", "x".into(), patience)).await.unwrap();
    assert_eq!(soon(again.next()).await.unwrap().unwrap(), "x");
    drop(endless);

    let pending = tokio::spawn(async move { peer.requests.call("never", Bytes::new(), patience).await.map(|_| ()) });
    drop(connected);
    let refusal = soon(pending).await.unwrap().unwrap_err();
    assert!(refusal.text().starts_with("the link to "), "{refusal}");
}
