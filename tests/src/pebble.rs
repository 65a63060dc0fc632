//! Pebble, the authority for tests of ACME, with a name server of its own.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::child_guard::ChildGuard;
use testkit::eventually::{check, eventually_within};
use testkit::ports::free_port;
use testkit::require;

pub struct Pebble {
    pub directory: String,
    pub ca_file: PathBuf,
    /// The port at which it looks for answers to its challenges.
    pub http_port: u16,
    management: u16,
    name_management: u16,
    log: PathBuf,
    _programs: [ChildGuard; 2],
}

pub fn has_pebble() -> bool {
    let is_there = |program: &str, argument: &str| {
        Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let missing = [("pebble", "-h"), ("pebble-challtestsrv", "-h"), ("curl", "-V"), ("openssl", "version")]
        .into_iter()
        .find(|(program, argument)| !is_there(program, argument));
    if let Some((program, _)) = missing {
        require::skipped("pebble", &format!("{program} is not installed"));
    }
    missing.is_none()
}

impl Pebble {
    /// `environment` is for example `PEBBLE_WFE_NONCEREJECT`.
    pub async fn start(folder: &Path, validity: Duration, environment: &[(&str, &str)]) -> Self {
        let [acme, management, dns, name_management, http_port, tls_port] = [(); 6].map(|()| free_port());
        let text = |name: &str| folder.join(name).display().to_string();
        let (certificate, key) = (text("pebble.crt"), text("pebble.key"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=pebble", "-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &certificate])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let config = serde_json::json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{acme}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": certificate, "privateKey": key,
            "httpPort": http_port, "tlsPort": tls_port,
            "certificateValidityPeriod": validity.as_secs(),
        }});
        let config_file = folder.join("pebble.json");
        std::fs::write(&config_file, config.to_string()).unwrap();
        let log = folder.join("pebble.log");
        let mut names = Command::new("pebble-challtestsrv");
        names.args(["-defaultIPv4", "", "-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", ""]);
        names.args(["-dns01", &format!("127.0.0.1:{dns}")]);
        names.args(["-management", &format!("127.0.0.1:{name_management}")]);
        names.stdout(Stdio::null()).stderr(Stdio::null());
        let mut pebble = Command::new("pebble");
        pebble.arg("-config").arg(&config_file).args(["-dnsserver", &format!("127.0.0.1:{dns}")]);
        let quick: BTreeMap<&str, &str> = BTreeMap::from([
            ("PEBBLE_VA_NOSLEEP", "1"),
            ("PEBBLE_WFE_NONCEREJECT", "0"),
            ("PEBBLE_AUTHZREUSE", "0"),
        ]);
        pebble.envs(quick).envs(environment.iter().copied());
        let output = std::fs::File::create(&log).unwrap();
        pebble.stdout(output.try_clone().unwrap()).stderr(output);
        let programs = [ChildGuard::spawn(&mut names).unwrap(), ChildGuard::spawn(&mut pebble).unwrap()];
        let this = Self {
            directory: format!("https://127.0.0.1:{acme}/dir"),
            ca_file: certificate.into(),
            http_port,
            management,
            name_management,
            log,
            _programs: programs,
        };
        eventually_within(Duration::from_secs(20), "Pebble answers", || async {
            check(this.get(&this.directory).contains("newOrder"), || this.log())
        })
        .await;
        this
    }

    fn get(&self, url: &str) -> String {
        let output =
            Command::new("curl").args(["-sS", "--cacert"]).arg(&self.ca_file).arg(url).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    pub fn set_address(&self, name: &str, address: Ipv4Addr) {
        self.names("clear-a", &serde_json::json!({"host": format!("{name}.")}));
        let record = serde_json::json!({"host": format!("{name}."), "addresses": [address.to_string()]});
        self.names("add-a", &record);
    }

    fn names(&self, what: &str, body: &serde_json::Value) {
        let url = format!("http://127.0.0.1:{}/{what}", self.name_management);
        let status = Command::new("curl").args(["-sSf", "-d", &body.to_string(), &url]).status().unwrap();
        assert!(status.success(), "{what} {body}");
    }

    pub fn root(&self, folder: &Path) -> PathBuf {
        let file = folder.join("root.pem");
        std::fs::write(&file, self.get(&format!("https://127.0.0.1:{}/roots/0", self.management))).unwrap();
        file
    }

    pub fn issued(&self) -> usize {
        self.log().matches("Issued certificate serial").count()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
