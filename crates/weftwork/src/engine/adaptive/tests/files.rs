//! Tests files whose reads take long.

use super::*;
use crate::message::quick;
use crate::transport::slow_file::testing::hold;

const FILE_BYTES: usize = 5 << 20;

#[test]
fn a_file_on_a_slow_disk_leaves_its_loop_to_another_thread() {
    for mode in [Mode::Adaptive { loops: 1 }, Mode::Pool { standby: 1 }] {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; FILE_BYTES]).unwrap();
        let gate = Arc::new(RwLock::new(()));
        hold(&file, &gate);
        // The loop makes the calls, and sends what they return.
        let site = move |req: &mut Request<'_>| match req.path() {
            "/file" => file.try_clone().map_err(crate::Error::from).and_then(Response::file).into_response(),
            _ => Response::text("hello"),
        };
        let (engine, loops) = TestEngine::empty_in(mode, quick(site), Settings::default());
        engine.shared.open(loops).unwrap();
        let held = gate.write().unwrap();
        let mut downloads: Vec<_> = (0..3).map(|_| engine.ask("/file")).collect();
        // Their files come next.
        let heads = downloads.iter_mut().map(|download| download.read(&mut [0; 4]).unwrap());
        assert_eq!(heads.collect::<Vec<_>>(), [4; 3]);
        for _ in 0..3 {
            is_answered(engine.ask("/"));
        }
        drop(held);
        for mut download in downloads {
            let mut rest = Vec::new();
            download.read_to_end(&mut rest).unwrap();
            assert!(rest.len() > FILE_BYTES && rest.ends_with(b"xxx"), "{} bytes", rest.len());
        }
        engine.close();
    }
}
