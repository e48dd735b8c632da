//! Tests of the devices and cores of blocks, and of the transfers between devices.

use super::kinds::registry;
use crate::{Plan, Setting, beside_frames, load_text};
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::codes;

const GRAPH: &str = "flowgraph: g
device: \"${device}\"
parameters: {device: cpu}
blocks:
  s: {kind: source}
  a: {kind: turner, input: s.pol0}
  b: {kind: turner, input: a, implementation: quicker}
  c: {kind: turner, input: a, device: cpu}
  oa: {kind: sink, input: a}
  ob: {kind: sink, input: b}
  oc: {kind: sink, input: c}
  od: {kind: sink, input: s.pol1}
";

fn plan(text: &str, device: &str) -> Plan {
    let set = [Setting::typed("device", device)];
    load_text("g.yaml", text, &set, &registry()).result.unwrap()
}

fn messages(text: &str, device: &str) -> Vec<String> {
    let set = [Setting::typed("device", device)];
    let problems = load_text("g.yaml", text, &set, &registry()).result.err().unwrap();
    problems.into_iter().map(|problem| problem.message).collect()
}

/// All edges as `reader <- source`.
fn edges(plan: &Plan) -> Vec<String> {
    let feeds = plan.blocks.iter().flat_map(|block| block.inputs.iter().map(move |s| (block, s)));
    feeds
        .map(|(block, (from, _))| format!("{} <- {}", block.name, plan.blocks[*from].name))
        .collect()
}

#[test]
fn plan_on_cpu_has_no_transfers() {
    let plan = plan(&GRAPH.replace(", implementation: quicker", ""), "cpu");
    assert_eq!(plan.blocks.len(), 8);
    assert!(plan.blocks.iter().all(|block| block.device == DeviceName::Cpu));
    assert_eq!(plan.memory().devices(), [DeviceName::Cpu]);
}

#[test]
fn automatic_device_is_the_cpu_on_a_machine_without_gpu() {
    let text = GRAPH.replace(", implementation: quicker", "");
    if !fxgraph_cuda::count().is_ok_and(|count| count > 0) {
        for device in ["auto", "auto:0", "auto:7"] {
            assert_eq!(plan(&text, device).memory().devices(), [DeviceName::Cpu], "{device}");
        }
    }
}

#[test]
fn plan_on_gpu_has_one_transfer_per_output_and_device() {
    let plan = plan(GRAPH, "cuda:1");
    let transfers: Vec<&str> = plan.blocks[8..].iter().map(|block| block.name.as_str()).collect();
    assert_eq!(transfers, ["s.pol0>cuda:1", "a.output>cpu", "b.output>cpu"]);
    let edges = edges(&plan);
    for edge in
        ["a <- s.pol0>cuda:1", "b <- a", "c <- a.output>cpu", "oa <- a.output>cpu", "od <- s"]
    {
        assert!(edges.iter().any(|known| known == edge), "{edge} of {edges:?}");
    }
    let implementations: Vec<&str> =
        plan.blocks[1..4].iter().map(|block| block.implementation).collect();
    assert_eq!(implementations, ["quick", "quicker", "cpu"]);
}

#[test]
fn plan_on_two_gpus_transfers_through_host() {
    let text = GRAPH.replace("implementation: quicker", "device: \"cuda:0\"");
    let edges = edges(&plan(&text, "cuda:1"));
    for edge in ["b <- a.output>cpu.output>cuda:0", "a.output>cpu.output>cuda:0 <- a.output>cpu"] {
        assert!(edges.iter().any(|known| known == edge), "{edge} of {edges:?}");
    }
}

#[test]
fn memory_is_counted_per_device() {
    let plan = plan(GRAPH, "cuda:0");
    let gpu = DeviceName::Cuda(0);
    let memory = plan.memory();
    assert_eq!(memory.devices(), [DeviceName::Cpu, gpu]);
    // Frames of 16 x 2 x 2 bytes and a validity count.
    let pool = |frames| fxgraph_cuda::pool_bytes(frames, 16 * 2 * 2) + 4 * frames;
    let context = memory.contexts[&gpu];
    let upload = 3 + (4 + 1 + 3);
    // 3 frames being filled; queue, frame at work and held frames of the readers b and download.
    let a = 3 + (4 + 1 + 3) + (2 + 1 + 2);
    let b = 3 + (2 + 1 + 2);
    let needed = context + 7 + 70 + pool(upload) + pool(a) + pool(b);
    assert_eq!(memory.bytes_on(gpu), needed);
    assert_eq!(plan.shortage(gpu, needed), None);
    let problem = plan.shortage(gpu, needed - 1).unwrap();
    let rule = "the flowgraph needs 587.2 MB of memory on cuda:0, 587.2 MB are available";
    assert!(fxgraph_cuda::CONTEXT_BYTES != context || problem.message == rule, "{problem:?}");
    assert!(problem.help[0].contains("for the CUDA context"), "{problem:?}");
}

#[test]
fn swap_needs_memory_on_the_devices_of_the_block_and_of_its_inputs() {
    let plan = plan(GRAPH, "cuda:0");
    let gpu = DeviceName::Cuda(0);
    let needed = plan.swap_bytes(&plan.memory());
    assert!(needed[&gpu] > 0 && needed[&DeviceName::Cpu] > 0, "{needed:?}");
    for (index, block) in plan.blocks.iter().enumerate().filter(|(_, block)| !block.is_transfer()) {
        if block.inputs.is_empty() || block.ports.outputs.is_empty() {
            continue;
        }
        for (device, bytes) in plan.swap_memory(index, &plan.memory()) {
            assert!(bytes <= needed[&device], "{}: {bytes} on {device}", block.name);
        }
    }
}

#[test]
fn each_frame_that_a_swap_adds_has_its_own_allocation() {
    let source = "{kind: source, parameters: {channels: 262144}}";
    let text = GRAPH.replace("{kind: source}", source).replace(", implementation: quicker", "");
    let plan = plan(&text, "cuda:0");
    let memory = plan.memory();
    let frame_bytes = plan.blocks[1].ports.outputs[0].frame_bytes();
    let added = beside_frames(frame_bytes) + plan.blocks[1].lent_frames(0);
    let needed = memory.blocks[1].bytes() + added * fxgraph_cuda::pool_bytes(1, frame_bytes);
    assert_eq!(plan.swap_memory(1, &memory)[&DeviceName::Cuda(0)], needed);
}

#[test]
fn several_chosen_threads_on_one_core_are_a_warning() {
    let warnings = |thread: &str| {
        let text = format!(
            "flowgraph: g\nblocks:\n  r:\n    kind: receiver\n    thread: {thread}\n    parameters: {{port: 7148, address: a}}\n"
        );
        let plan = load_text("g.yaml", &text, &[], &registry()).result.unwrap();
        let told = plan.warnings.iter().filter(|each| each.code == codes::IMPLAUSIBLE);
        told.map(|each| each.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(warnings("{core: 3}"), ["`r` has 2 threads, all of them on core 3"]);
    assert_eq!([warnings("own"), warnings("shared")], [[""; 0]; 2]);
}

#[test]
fn device_and_implementation_of_block_override_flowgraph() {
    let own = |what: &str| {
        format!(
            "flowgraph: g\nparameters: {{device: cpu}}\ndevice: \"${{device}}\"\nblocks:\n  s: {{kind: source}}\n  a: {{kind: turner, input: s, {what}}}\n"
        )
    };
    assert_eq!(plan(&own("implementation: cpu"), "cuda:0").blocks[1].device, DeviceName::Cpu);
    assert_eq!(plan(&own("device: \"cuda:2\""), "cpu").blocks[1].device, DeviceName::Cuda(2));
    assert_eq!(
        messages(&own("implementation: quick"), "cpu"),
        ["implementation `quick` of `turner` does not run on `cpu`"]
    );
    assert_eq!(
        messages(&own("implementation: cpu, device: \"cuda:0\""), "cpu"),
        ["implementation `cpu` of `turner` does not run on `cuda:0`"]
    );
    assert_eq!(messages(&own("queue: 2"), "gpu"), ["there is no device `gpu`"]);
    assert_eq!(messages(&own("device: 'null'"), "cpu"), ["there is no device `null`"]);
    for wrong in ["auto:", "auto:x", "auto:01", "auto:-1"] {
        assert_eq!(messages(&own("queue: 2"), wrong), [format!("there is no device `{wrong}`")]);
    }
    let said = messages(&own("implementation: null"), "cpu");
    assert!(said[0].starts_with("expected one of `cpu`, ") && said[0].ends_with(", found nothing"));
    let source = "flowgraph: g\nparameters: {device: cpu}\nblocks:\n  s: {kind: source, device: \"${device}\"}\n";
    assert_eq!(messages(source, "cuda:0"), ["`source` has no implementation for `cuda:0`"]);
}
