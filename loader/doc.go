// Package loader opens checkpoints: where the bytes of each tensor lie, without reading
// them.
//
// The nouns: a [Checkpoint] is one or more safetensors files opened together; a [File]
// is one of them; a [Tensor] is a handle that says where a tensor lies and gives its
// bytes when asked; a [Binding] joins a model's parameters to the tensors that fill them.
//
// The flow: [Open] takes a folder, a single file, a sharded index or a folder of the hub
// cache and reads headers only; [OpenBytes] does the same for files in memory, and
// [OpenModel] builds the skeleton that config.json describes as well. [Bind]
// resolves every source of every parameter and reports what is missing, misshapen or
// left over, all at once. [Tensor.Bytes] maps a file on first use and hands out its bytes
// in place. [Save] writes a checkpoint that transformers opens; [OpenOffload] and
// [WriteOffload] speak the folder format of Accelerate's disk offload.
//
// A header is accepted or refused exactly as safetensors 0.8.0 does. Names that come
// out of files never become paths: a shard's name in an index must be a plain file
// name, and an offload folder holds only names that are one.
//
// The loader knows parameters by their sources only. It does not know architectures,
// devices or what the numbers mean.
//
// # Caveats
//
// Bytes handed out by a tensor are read-only and valid until [Checkpoint.Close]. A file
// that is cut while it is mapped faults when the lost part is touched: a goroutine that
// touches mapped bytes calls debug.SetPanicOnFault(true), recovers, and asks
// [Checkpoint.FileAt] or [Checkpoint.Verify] which file it was.
package loader
