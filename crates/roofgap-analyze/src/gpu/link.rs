//! Links of a device: to the host, its own memory, and to other GPUs of the node.

use super::{GpuFacts, UserLimits};
use crate::result::CopyKind;
use roofgap_trace::Device;

/// The peak of a link for one kind of copy.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkPeak {
    /// Name of the link.
    pub name: String,
    /// Bytes copied per second.
    pub bytes_per_s: f64,
}

/// The links of a device, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CopyLinks {
    host: Option<LinkPeak>,
    memory: Option<LinkPeak>,
    peer: Option<LinkPeak>,
}

impl CopyLinks {
    /// Finds the links of a device in the table of GPUs.
    pub fn of(device: &Device, limits: UserLimits) -> Self {
        let facts = GpuFacts::of_device(device, limits);
        let host = facts
            .host_link
            .as_deref()
            .and_then(|name| Some(LinkPeak { bytes_per_s: host_bytes_per_s(name)?, name: name.to_owned() }));
        let memory = facts.bandwidth().map(|(bytes_per_s, _)| LinkPeak {
            name: "device memory".to_owned(),
            // Every byte is read and written.
            bytes_per_s: bytes_per_s / 2.0,
        });
        let peer = match facts.nvlink_gbs {
            // One of the two directions.
            Some(both) if both > 0.0 => {
                Some(LinkPeak { name: "NVLink".to_owned(), bytes_per_s: both * 1e9 / 2.0 })
            }
            Some(_) => host.clone(),
            None => None,
        };
        Self { host, memory, peer }
    }

    /// Returns the peak of the link to other GPUs of the node, in one direction; `None` where unknown.
    pub fn peer(&self) -> Option<&LinkPeak> {
        self.peer.as_ref()
    }

    /// Returns the peak for a kind of copy; `None` where unknown.
    pub fn peak(&self, kind: CopyKind) -> Option<LinkPeak> {
        match kind {
            CopyKind::HostToDevice
            | CopyKind::DeviceToHost
            | CopyKind::ManagedToDevice
            | CopyKind::ManagedToHost => self.host.clone(),
            CopyKind::DeviceToDevice => self.memory.clone(),
            CopyKind::PeerToPeer | CopyKind::HostToHost | CopyKind::ManagedToPeer | CopyKind::Unknown => None,
        }
    }
}

/// Returns the peak of a link to the host in one direction: of PCIe by its generation and lanes, after line coding.
fn host_bytes_per_s(link: &str) -> Option<f64> {
    if link == "NVLink-C2C" {
        // 900 GB/s in both directions together.
        return Some(450e9);
    }
    let (generation, lanes) = link.strip_prefix("PCIe ")?.split_once(" x")?;
    // Transfers per second and lane; 128 of 130 bits are data.
    let rate = match generation {
        "3.0" => 8e9,
        "4.0" => 16e9,
        "5.0" => 32e9,
        _ => return None,
    };
    Some(rate * lanes.parse::<f64>().ok()? * 128.0 / 130.0 / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_of_links() {
        let gbs = |link: &str| host_bytes_per_s(link).map(|peak| (peak / 1e8).round() / 10.0);
        assert_eq!(gbs("PCIe 3.0 x16"), Some(15.8));
        assert_eq!(gbs("PCIe 4.0 x8"), Some(15.8));
        assert_eq!(gbs("PCIe 5.0 x16"), Some(63.0));
        assert_eq!(gbs("PCIe 9.0 x16"), None);
        assert_eq!(gbs("NVLink-C2C"), Some(450.0));
    }

    #[test]
    fn every_link_of_the_table_has_a_peak() {
        let rows = super::super::lookup::all().unwrap();
        let links: Vec<&str> = rows.iter().filter_map(|row| row.host_link.as_deref()).collect();
        assert!(links.len() > 35, "{}", links.len());
        for link in links {
            assert!(host_bytes_per_s(link).is_some(), "{link}");
        }
    }

    #[test]
    fn a_device_that_is_not_known_has_no_links() {
        let unknown = CopyLinks::of(&Device::default(), UserLimits::default());
        assert_eq!(unknown, CopyLinks::default());
        let h200 = Device {
            name: Some("NVIDIA H200".into()),
            compute_capability: Some((9, 0)),
            ..Device::default()
        };
        let links = CopyLinks::of(&h200, UserLimits::default());
        assert_eq!(links.peak(CopyKind::HostToDevice).unwrap().name, "PCIe 5.0 x16");
        assert_eq!(links.peak(CopyKind::DeviceToDevice).unwrap().bytes_per_s, 2.4e12);
        assert_eq!(links.peak(CopyKind::PeerToPeer), None);
        let peer = |name: &str, capability| {
            let device =
                Device { name: Some(name.into()), compute_capability: Some(capability), ..Device::default() };
            let links = CopyLinks::of(&device, UserLimits::default());
            links.peer().map(|link| (link.name.clone(), (link.bytes_per_s / 1e9).round()))
        };
        assert_eq!(peer("NVIDIA H200", (9, 0)), Some(("NVLink".to_owned(), 450.0)));
        assert_eq!(peer("NVIDIA L40S", (8, 9)), Some(("PCIe 4.0 x16".to_owned(), 32.0)));
        assert_eq!(peer("NVIDIA H100 PCIe", (9, 0)), None, "its bridge is optional");
    }
}
