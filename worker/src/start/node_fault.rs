//! Decides by the engine's message whether a pod's start failed because of its node. Pure.

/// Lower case. A pod alone cannot cause these failures.
const NODE_FAULTS: [&str; 13] = [
    "no space left on device",
    "disk quota exceeded",
    "read-only file system",
    "input/output error",
    "structure needs cleaning",
    "too many open files",
    "cannot allocate memory",
    "no chain/target/match by that name",
    "iptables failed",
    "unable to enable",
    "could not find an available, non-overlapping",
    "no available ipv4 addresses",
    "no available network",
];

pub(crate) fn is_node_fault(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    NODE_FAULTS.iter().any(|fault| message.contains(fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_lacks_is_told_from_what_the_pod_asks_for() {
        for (message, expected) in [
            ("mkdir /var/lib/docker/overlay2/ab: no space left on device", true),
            ("failed to register layer: write /usr/lib/x.so: No space left on device", true),
            (
                "driver failed programming external connectivity: (iptables failed: iptables --wait -t nat: \
                 iptables: No chain/target/match by that name. (exit status 1))",
                true,
            ),
            ("error creating overlay mount: read-only file system", true),
            ("exec: \"nosuchcmd\": executable file not found in $PATH: unknown", false),
            ("manifest for nginx:1.255 not found: manifest unknown", false),
            ("the memory limit is below the minimum", false),
        ] {
            assert_eq!(is_node_fault(message), expected, "{message}");
        }
    }
}
