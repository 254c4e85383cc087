//! Damaged objects.

use std::fs;
use std::path::Path;

use blobs::{Blobs, Error};
use bytes::Bytes;
use futures_util::StreamExt;
use model::blob::BlobId;

use crate::support::{Fixture, content, noise};

/// Every kind of read must fail, and none may return the full number of bytes.
async fn assert_damaged(blobs: &Blobs, id: BlobId, bytes: usize, what: &str) {
    match blobs.read(id).await {
        Err(error) => assert!(matches!(error, Error::Damaged { .. }), "{what}: {error}"),
        Ok(mut stream) => {
            let mut received = 0;
            let error = loop {
                match stream.next().await.unwrap_or_else(|| panic!("{what}: the stream ended without an error")) {
                    Ok(piece) => received += piece.len(),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Damaged { .. }), "{what}: {error}");
            assert!(received < bytes.max(1), "{what}: {received} bytes were returned");
        }
    }
    assert!(matches!(blobs.materialise(id).await, Err(Error::Damaged { .. })), "{what}");
}

// FEATURES: C11
#[tokio::test]
async fn a_flipped_bit_anywhere_is_detected() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = Bytes::from("a small text, a small text, and noise: ".repeat(3).into_bytes());
    let id = blobs.put(original.clone()).await.unwrap();
    let path = fixture.stored(id);
    let intact = fs::read(&path).unwrap();
    for position in 0..intact.len() {
        for bit in [0, 4, 7] {
            let mut damaged = intact.clone();
            damaged[position] ^= 1 << bit;
            fs::write(&path, &damaged).unwrap();
            assert_damaged(&blobs, id, original.len(), &format!("byte {position}, bit {bit}")).await;
        }
    }
    fs::write(&path, &intact).unwrap();
    assert_eq!(content(&blobs, id).await.unwrap(), original);
}

#[tokio::test]
async fn a_truncated_or_extended_blob_is_detected() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(300, 1);
    let id = blobs.put(original.clone()).await.unwrap();
    let path = fixture.stored(id);
    let intact = fs::read(&path).unwrap();
    for bytes in 0..intact.len() {
        fs::write(&path, &intact[..bytes]).unwrap();
        assert_damaged(&blobs, id, original.len(), &format!("{bytes} bytes left")).await;
        assert!(blobs.stat(id).await.is_err());
    }
    fs::write(&path, [&intact[..], &[0]].concat()).unwrap();
    assert_damaged(&blobs, id, original.len(), "a byte more").await;
}

#[tokio::test]
async fn damage_in_a_large_blob_is_detected_before_its_end() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(2_000_000, 1);
    let id = blobs.put(original.clone()).await.unwrap();
    let path = fixture.stored(id);
    let intact = fs::read(&path).unwrap();
    for position in [100, 1_000_000, intact.len() - 1] {
        let mut damaged = intact.clone();
        damaged[position] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert_damaged(&blobs, id, original.len(), &format!("byte {position}")).await;
    }
}

#[tokio::test]
async fn the_content_of_another_blob_is_detected() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let one = blobs.put(Bytes::from_static(b"one")).await.unwrap();
    let two = blobs.put(Bytes::from_static(b"two")).await.unwrap();
    fs::copy(fixture.stored(two), fixture.stored(one)).unwrap();
    assert_damaged(&blobs, one, 3, "another content").await;
}

#[tokio::test]
async fn a_decompression_bomb_is_detected_before_it_fills_the_disk() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let small = blobs.put(Bytes::from_static(b"small")).await.unwrap();
    let bomb = blobs.put(Bytes::from(vec![0; 50_000_000])).await.unwrap();
    // The large content with the small plain size in its header and matching checksums.
    let bytes = fs::read(fixture.stored(bomb)).unwrap();
    let mut forged = bytes.clone();
    forged[8..16].copy_from_slice(&5_u64.to_le_bytes());
    let crc = crc(&forged[..28]);
    forged[28..32].copy_from_slice(&crc.to_le_bytes());
    fs::write(fixture.stored(small), forged).unwrap();
    assert_damaged(&blobs, small, 5, "a bomb").await;
    assert_eq!(fixture.leftovers(), [] as [&Path; 0]);
}

/// Bitwise CRC-32C.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 })
    })
}

// FEATURES: C11
#[tokio::test]
async fn a_damaged_blob_is_reported_as_missing_and_replaced() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(1000, 1);
    let id = blobs.put(original.clone()).await.unwrap();
    fs::write(fixture.stored(id), b"junk").unwrap();
    assert!(content(&blobs, id).await.is_err());
    assert_eq!(blobs.missing(&[id]).await.unwrap(), [id]);
    blobs.put(original.clone()).await.unwrap();
    assert_eq!(blobs.missing(&[id]).await.unwrap(), []);
    assert_eq!(content(&blobs, id).await.unwrap(), original);
}

#[tokio::test]
async fn a_damaged_blob_leaves_nothing_in_the_cache() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = blobs.put(noise(2_000_000, 1)).await.unwrap();
    let mut bytes = fs::read(fixture.stored(id)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(fixture.stored(id), bytes).unwrap();
    assert!(matches!(blobs.materialise(id).await, Err(Error::Damaged { .. })));
    assert!(matches!(blobs.read_range(id, 0..10).await, Err(Error::Damaged { .. })));
    assert_eq!(fixture.leftovers(), [] as [&Path; 0]);
}
