//! Tells whether a part of a file is in memory. Sending any other part may wait for a disk or a network.

use std::fs::File;

/// Maximum number of bytes of a file per system call, so that a fast peer does not hold a loop. With 256 KiB, a file of
/// 1 MiB took 8 % more CPU.
pub(crate) const FILE_BYTES_A_CALL: u64 = 2 << 20;

/// Returns whether the next call that sends this part may wait. Only its last byte is looked at, because the kernel reads files
/// ahead. File systems that cannot tell (FUSE, NFS) may wait.
#[cold]
pub(crate) fn may_wait(file: &File, offset: u64, count: u64) -> bool {
    #[cfg(test)]
    if testing::is_held(file) {
        return true;
    }
    is_absent(file, offset + count.clamp(1, FILE_BYTES_A_CALL) - 1)
}

#[cfg(target_os = "linux")]
fn is_absent(file: &File, offset: u64) -> bool {
    use rustix::io::{ReadWriteFlags, preadv2};
    let mut byte = [0];
    let mut bytes = [std::io::IoSliceMut::new(&mut byte)];
    preadv2(file, &mut bytes, offset, ReadWriteFlags::NOWAIT).is_err()
}

#[cfg(not(target_os = "linux"))]
fn is_absent(_: &File, _: u64) -> bool {
    true
}

#[cfg(test)]
pub(crate) mod testing {
    //! Files whose reads wait.

    use std::os::unix::fs::MetadataExt;
    use std::sync::{Arc, Mutex, RwLock};

    use super::*;

    static HELD: Mutex<Vec<(u64, Arc<RwLock<()>>)>> = Mutex::new(Vec::new());

    /// Makes reads of the file wait for the lock.
    pub(crate) fn hold(file: &File, lock: &Arc<RwLock<()>>) {
        let (inode, mut held) = (file.metadata().unwrap().ino(), HELD.lock().unwrap());
        // The number of a file that has gone may be given again.
        held.retain(|(other, _)| *other != inode);
        held.push((inode, lock.clone()));
    }

    fn lock_of(file: &File) -> Option<Arc<RwLock<()>>> {
        let inode = file.metadata().unwrap().ino();
        HELD.lock().unwrap().iter().find(|(held, _)| *held == inode).map(|(_, lock)| lock.clone())
    }

    pub(super) fn is_held(file: &File) -> bool {
        lock_of(file).is_some()
    }

    pub(crate) fn wait_if_held(file: &File) {
        if let Some(lock) = lock_of(file) {
            drop(lock.read().unwrap());
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_just_written_is_in_memory() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 10_000]).unwrap();
        for (offset, count) in [(0, 1), (0, 10_000), (9_999, 1), (5_000, 5_000)] {
            assert!(!may_wait(&file, offset, count), "{count} bytes at {offset}");
        }
        // The file has become shorter, which the send reports.
        assert!(!may_wait(&file, 20_000, 1));
        // The kernel refuses to tell.
        assert!(may_wait(&File::open("/").unwrap(), 0, 1));
    }
}
