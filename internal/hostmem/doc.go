// Package hostmem manages large host memory outside the Go heap: weights, KV cache, activations and
// read-ahead buffers. The garbage collector neither scans nor moves this memory. The system gets it
// back as soon as it is released.
//
// A [Ledger] counts bytes by [Purpose]. A [Block] is anonymous memory that a ledger counts. An
// [Arena] allocates blocks from one region of huge pages. A [Mapping] is a file mapped read-only, whose
// bytes are used in place. A [DirectFile] reads without the page cache if the system can.
//
// A process makes one Ledger and passes it to every package that allocates. A block or mapping has one
// owner, who releases it. Using its bytes after that is a fault, as with any unmapped address. Memory
// of requests is on the Go heap; package api/wire counts it in the same ledger.
//
// This is the only home of mmap, madvise and O_DIRECT. The package knows no tensors, layers or
// checkpoints and has no state: no ledger is global. On systems without mmap blocks come from the Go
// heap, and [Map] fails with errors.ErrUnsupported.
package hostmem
