//! Clients of `GET /api/events`: each follows one node across its faults, and resumes after the last record that it got.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::cluster::nodes::admin_header;
use crate::support::test_server::TEST_TIMEOUT;

/// Pause before another attempt to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Client that follows one node.
#[derive(Debug, Default)]
pub(super) struct RecordFollower {
    /// Sequence number of the last record.
    pub(super) last_seq: AtomicU64,
    /// Set when the node will not be started again.
    pub(super) is_stopped: AtomicBool,
}

/// Records that a node sent live.
#[derive(Debug, Default)]
pub(super) struct FollowedRecords {
    pub(super) records: Vec<Value>,
    /// Number of streams over which they came.
    pub(super) streams: usize,
}

impl RecordFollower {
    /// Follows the node until it is stopped. Panics if it misses a record or sends one twice.
    pub(super) fn run(&self, url: &str) -> FollowedRecords {
        let mut followed = FollowedRecords::default();
        while !self.is_stopped.load(Ordering::SeqCst) {
            // An error is the end of the node, which the caller has caused.
            let _ = self.follow_stream(url, &mut followed);
            std::thread::sleep(RETRY_PAUSE);
        }
        followed
    }

    /// Opens one stream and reads it until it ends.
    fn follow_stream(&self, url: &str, followed: &mut FollowedRecords) -> io::Result<()> {
        let address = url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        // HTTP/1.0, because its responses have no chunks.
        let path = format!("/api/events?after={}", self.last_seq.load(Ordering::SeqCst));
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n{}\r\n", admin_header())?;
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
        if !status.contains(" 200 ") {
            return Err(io::Error::other(status));
        }
        followed.streams += 1;
        let mut seq = None;
        for line in lines {
            let line = line?;
            if self.is_stopped.load(Ordering::SeqCst) {
                break;
            }
            if let Some(id) = line.strip_prefix("id: ") {
                seq = Some(id.parse::<u64>().unwrap());
            } else if let (Some(data), Some(seq)) = (line.strip_prefix("data: "), seq.take()) {
                // The stream may end within a line.
                let Ok(record) = serde_json::from_str::<Value>(data) else { break };
                let last = self.last_seq.load(Ordering::SeqCst);
                assert_eq!((seq, &record["seq"]), (last + 1, &Value::from(seq)), "a gap or a duplicate at {url}");
                followed.records.push(record);
                self.last_seq.store(seq, Ordering::SeqCst);
            }
        }
        Ok(())
    }
}
