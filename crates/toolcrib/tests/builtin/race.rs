//! File tools while another process exchanges a directory for a link that leads outside of the root.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;

const OPERATIONS: usize = 10_000;

/// Exchanges `swapped` and `link` as fast as possible until it is dropped.
struct DirectorySwapper {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl DirectorySwapper {
    fn start(one: PathBuf, other: PathBuf) -> DirectorySwapper {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        DirectorySwapper { stop, thread: Some(thread) }
    }
}

impl Drop for DirectorySwapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Every file outside has the same name as one inside, and a text that no file inside has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_operation_leaves_the_root_while_a_directory_is_exchanged_for_a_link() {
    let place = TestRoot::new();
    let outside = place.root.with_file_name("outside");
    std::fs::create_dir_all(outside.join("deep")).unwrap();
    for (path, text) in [("file.txt", "secret"), ("deep/file.txt", "secret"), ("secret.txt", "secret")] {
        std::fs::write(outside.join(path), text).unwrap();
    }
    place.write("swapped/file.txt", b"inside");
    place.write("swapped/deep/file.txt", b"inside");
    symlink(&outside, place.root.join("link")).unwrap();
    let before = read_tree(&outside);

    let names = ["file_read", "file_list", "file_find", "file_search", "file_write", "file_edit"];
    let handlers: Vec<BuiltinHandler> = names.iter().map(|name| tool(name, Some(&place.root))).collect();
    let exchange = DirectorySwapper::start(place.root.join("swapped"), place.root.join("link"));
    let mut succeeded = [0_usize; 6];
    for number in 0..OPERATIONS {
        let index = number % names.len();
        let directory = ["swapped", "swapped/deep"][number / names.len() % 2];
        let file = format!("{directory}/file.txt");
        let input = match names[index] {
            "file_read" => json!({ "path": file }),
            // The whole root is walked now and then: the exchange happens between its steps, too.
            "file_list" if number % 4 == 1 => json!({ "depth": 4 }),
            "file_list" => json!({ "path": directory, "depth": 3 }),
            "file_find" if number % 4 == 2 => json!({ "pattern": "*.txt" }),
            "file_find" => json!({ "pattern": "*.txt", "path": directory }),
            "file_search" if number % 4 == 3 => json!({ "pattern": "secret|inside" }),
            "file_search" => json!({ "pattern": "secret|inside", "path": directory }),
            "file_write" if number % 4 == 0 => json!({ "path": file, "content": "inside", "overwrite": true }),
            "file_write" => json!({ "path": format!("{directory}/new{number}.txt"), "content": "inside" }),
            _ => json!({ "path": file, "old": "inside", "new": "inside" }),
        };
        match handlers[index](input.clone()).await {
            Ok(answer) => {
                let answer = joined_text(&answer);
                assert!(!answer.contains("secret"), "{} {input} led outside: {answer}", names[index]);
                succeeded[index] += 1;
            }
            Err(error) => assert!(!error.message.contains("secret"), "{error}"),
        }
        if number % 100 == 0 {
            assert_eq!(read_tree(&outside), before, "after {} {input}", names[index]);
        }
    }
    drop(exchange);
    assert_eq!(read_tree(&outside), before);
    assert!(succeeded.iter().all(|&count| count > 0), "the race left no time for some tools: {succeeded:?}");
}

/// All paths below a directory, with the content of the files.
fn read_tree(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(read_tree(&path));
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found.sort();
    found
}
