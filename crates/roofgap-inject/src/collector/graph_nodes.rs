//! Records the nodes of CUDA graphs as they are created and cloned, so that a kernel of a replay gets the ranges that were open
//! while its graph was captured.
//!
//! CUPTI calls back only while a program builds graphs; a replay costs nothing more.

use std::ffi::c_void;

use super::session::{self, Gpu, Session};
use super::thread;
use crate::cupti::sys;

/// Starts or stops recording the nodes of graphs.
pub fn set(session: &Session, gpu: &Gpu, on: bool) {
    let numbers = [sys::GRAPH_NODE_CREATED, sys::GRAPH_NODE_CLONED];
    let accepted = gpu.api.can_name_graph_nodes()
        && numbers
            .map(|number| gpu.api.set_callback(&gpu.subscriber, sys::DOMAIN_RESOURCE, number, on))
            .iter()
            .all(|accepted| *accepted);
    if on && !accepted {
        let detail = "this CUPTI does not report the nodes of graphs, so kernels of graphs have no layer";
        session.note("cupti.graph_nodes_refused", 1, detail);
    }
}

/// Handles a callback about a resource.
///
/// # Safety
/// `data` must be null or what CUPTI passes to callbacks of the resource domain.
pub unsafe fn on_resource(number: u32, data: *const c_void) {
    if number != sys::GRAPH_NODE_CREATED && number != sys::GRAPH_NODE_CLONED {
        return;
    }
    let Some(gpu) = session::current().and_then(Session::gpu) else {
        return;
    };
    // SAFETY: as the caller promises; CUPTI passes a graph with these two numbers.
    let graph = unsafe {
        data.cast::<sys::ResourceData>()
            .as_ref()
            .and_then(|resource| resource.descriptor.cast::<sys::GraphData>().as_ref())
    };
    let Some(graph) = graph.filter(|graph| !graph.node.is_null()) else {
        return;
    };
    // SAFETY: both nodes are those of this callback.
    let id = |node: *mut c_void| unsafe { gpu.api.graph_node_id(node) };
    let original = match number {
        sys::GRAPH_NODE_CLONED if graph.original_node.is_null() => return,
        sys::GRAPH_NODE_CLONED => id(graph.original_node),
        _ => Some(0),
    };
    if let (Some(node), Some(original)) = (id(graph.node), original) {
        thread::graph_node(node, original);
    }
}
