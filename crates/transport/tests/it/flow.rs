//! Order, backpressure and limits of a link.

use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt;
use transport::limits::{ENVELOPE_BYTES_MAX, MESSAGE_BYTES_MAX};
use transport::{ClientOptions, SendError, TrySendError};

use crate::support::{Control, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_envelopes_arrive_in_order_both_ways() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, peer) = control.connect(&member).await;
    let started = Instant::now();
    let transfer = |sender: transport::Sender, mut receiver: transport::Receiver| async move {
        let sending = async {
            for number in 0..100_000u64 {
                sender.send(Bytes::copy_from_slice(&number.to_be_bytes())).await.unwrap();
            }
        };
        let receiving = async {
            for number in 0..100_000u64 {
                assert_eq!(receiver.recv().await.unwrap()[..], number.to_be_bytes());
            }
        };
        soon(async { tokio::join!(sending, receiving) }).await;
        (sender, receiver)
    };
    let there = tokio::spawn(transfer(connected.sender, peer.receiver));
    let back = tokio::spawn(transfer(peer.sender, connected.receiver));
    let _halves = (there.await.unwrap(), back.await.unwrap());
    println!("100,000 envelopes both ways took {:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_receiver_fills_the_senders_queue_and_no_more() {
    let mut control = Control::start().await;
    let member = control.member();
    let options = ClientOptions { queue_bytes_max: 20 << 20, ..ClientOptions::default() };
    let (connected, mut peer) = control.connect_with(&member, options).await;
    let envelope = Bytes::from(vec![7; 64 << 10]);
    // Both halves of a link that nobody reads. Windows and buffers fill, then the queue.
    let mut sent = 0;
    let overfull = async {
        loop {
            match connected.sender.try_send(envelope.clone()) {
                Ok(()) => sent += 1,
                // The queue is full; whether the windows are, too, shows when it stays full.
                Err(TrySendError::Full) if is_stuck(&connected.sender).await => break,
                Err(TrySendError::Full) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    soon(overfull).await;
    let bytes = sent * envelope.len();
    assert!(bytes < 32 << 20, "{bytes} bytes are in flight");
    assert!(connected.sender.queued_bytes() <= 20 << 20);
    // The link is not closed, and nothing is lost.
    assert!(connected.sender.closed().now_or_never().is_none());
    for _ in 0..sent {
        assert_eq!(soon(peer.receiver.recv()).await.unwrap(), envelope);
    }
    soon(connected.sender.send("the end".into())).await.unwrap();
    assert_eq!(soon(peer.receiver.recv()).await.unwrap(), "the end");
}

/// Whether the queue does not shrink for a while in which the other side could have read.
async fn is_stuck(sender: &transport::Sender) -> bool {
    let before = sender.queued_bytes();
    for _ in 0..100 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        if sender.queued_bytes() != before {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn an_envelope_at_the_limit_is_sent_and_a_larger_one_refused() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, mut peer) = control.connect(&member).await;
    let largest = Bytes::from(vec![1; ENVELOPE_BYTES_MAX]);
    connected.sender.try_send(largest.clone()).unwrap();
    connected.sender.try_send(Bytes::new()).unwrap();
    assert!(soon(peer.receiver.recv()).await.unwrap() == largest);
    assert!(soon(peer.receiver.recv()).await.unwrap().is_empty());
    let bytes = ENVELOPE_BYTES_MAX + 1;
    let refused = connected.sender.try_send(Bytes::from(vec![1; bytes]));
    assert_eq!(refused, Err(TrySendError::Send(SendError::TooLarge { bytes })));
    assert!(bytes < MESSAGE_BYTES_MAX);
}
