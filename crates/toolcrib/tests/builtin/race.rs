//! File tools while a directory is constantly swapped with a link that leads outside of the root.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;

const OPERATIONS: usize = 10_000;

/// Swaps two paths atomically, as fast as possible, until it is dropped.
struct DirectorySwapper {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl DirectorySwapper {
    fn start(first: PathBuf, second: PathBuf) -> DirectorySwapper {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                renameat_with(CWD, &first, CWD, &second, RenameFlags::EXCHANGE).unwrap();
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

/// Every file outside has the same name as one inside, and content that no file inside has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_operation_leaves_the_root_while_a_directory_is_swapped_with_a_link() {
    let test_root = TestRoot::new();
    let outside = test_root.root.with_file_name("outside");
    std::fs::create_dir_all(outside.join("deep")).unwrap();
    for (path, text) in [("file.txt", "secret"), ("deep/file.txt", "secret"), ("secret.txt", "secret")] {
        std::fs::write(outside.join(path), text).unwrap();
    }
    test_root.write("swapped/file.txt", b"inside");
    test_root.write("swapped/deep/file.txt", b"inside");
    symlink(&outside, test_root.root.join("link")).unwrap();
    let before = read_tree(&outside);

    let names = ["file_read", "file_list", "file_find", "file_search", "file_write", "file_edit"];
    let handlers: Vec<BuiltinHandler> = names.iter().map(|name| tool(name, Some(&test_root.root))).collect();
    let swapper = DirectorySwapper::start(test_root.root.join("swapped"), test_root.root.join("link"));
    let mut succeeded = [0_usize; 6];
    for number in 0..OPERATIONS {
        let index = number % names.len();
        let directory = ["swapped", "swapped/deep"][number / names.len() % 2];
        let file = format!("{directory}/file.txt");
        let input = match names[index] {
            "file_read" => json!({ "path": file }),
            // Now and then the whole root is walked: the swap then happens between its steps.
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
            Ok(output) => {
                let output = joined_text(&output);
                assert!(!output.contains("secret"), "{} {input} led outside: {output}", names[index]);
                succeeded[index] += 1;
            }
            Err(error) => assert!(!error.message.contains("secret"), "{error}"),
        }
        if number % 100 == 0 {
            assert_eq!(read_tree(&outside), before, "after {} {input}", names[index]);
        }
    }
    drop(swapper);
    assert_eq!(read_tree(&outside), before);
    assert!(succeeded.iter().all(|&count| count > 0), "the race left no time for some tools: {succeeded:?}");
}

/// All files below a directory with their content.
fn read_tree(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(read_tree(&path));
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            files.push((path, text));
        }
    }
    files.sort();
    files
}
