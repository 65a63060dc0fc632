//! A process with a terminal: types, resizes, and reads the screen.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use testkit::eventually::{check, eventually_within};

const SOON: Duration = Duration::from_secs(20);

pub struct Terminal {
    child: Child,
    master: File,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).to_owned();
        let side = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        command.stdin(side()).stdout(side()).stderr(side());
        let master = File::from(master);
        set_size(&master, columns, rows);
        let child = command.spawn().unwrap();
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let (mut output, kept) = (master.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                kept.lock().extend_from_slice(&buffer[..length]);
            }
        });
        Self { child, master, shown }
    }

    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        set_size(&self.master, columns, rows);
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::WINCH).unwrap();
    }

    /// Looks only at output after that of the last call.
    pub async fn shows(&self, text: &str) -> Duration {
        let begun = Instant::now();
        eventually_within(SOON, "the terminal shows the text", || async {
            let shown = self.text();
            check(shown.contains(text), || format!("{text:?} in {shown:?}"))
        })
        .await;
        self.shown.lock().clear();
        begun.elapsed()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock()).into_owned()
    }

    pub fn is_raw(&self) -> bool {
        !tcgetattr(&self.master).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    pub async fn ended(&mut self) -> Option<i32> {
        let child = std::cell::RefCell::new(&mut self.child);
        let status = eventually_within(SOON, "the process has ended", || async {
            child.borrow_mut().try_wait().unwrap()
        })
        .await;
        status.code()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _collected = self.child.wait();
    }
}

fn set_size(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}
