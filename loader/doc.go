// Package loader opens checkpoints. It locates the bytes of each tensor without reading them.
//
// A [Checkpoint] is one or more safetensors or GGUF files that are opened together; a [File] is
// one of them. A [Tensor] is a handle that locates a tensor and reads its bytes on request. A
// [Binding] joins a model's parameters to the tensors that fill them.
//
// [Open] opens a folder, a single file, a sharded index or a folder of the hub cache, and reads
// only headers. [OpenBytes] does the same for files in memory. [OpenModel] also builds the
// skeleton that config.json describes. [Bind] resolves every source of every parameter and
// reports all missing or misshapen tensors at once; it also lists unexpected ones. [Tensor.Bytes]
// maps a file on first use and returns its bytes in place. [Save] writes a checkpoint that
// transformers can open. [OpenOffload] and [WriteOffload] read and write the folder format of
// Accelerate's disk offload.
//
// Headers are accepted and rejected exactly as by safetensors 0.8.0. Names in files never become
// paths: a shard's name in an index must be a plain file name, and so must the names in an
// offload folder.
//
// The loader knows parameters only by their sources. It does not depend on architectures, devices
// or the meaning of values.
//
// # Caveats
//
// The bytes of a tensor are read-only and valid until [Checkpoint.Close]. If a mapped file is
// truncated, an access to the lost part faults. A goroutine that reads mapped bytes should call
// debug.SetPanicOnFault(true), recover, and find the file with [Checkpoint.FileAt] or
// [Checkpoint.Verify].
package loader
