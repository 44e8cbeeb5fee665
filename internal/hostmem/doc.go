// Package hostmem is big host memory off the Go heap: weights, keys and values,
// activations, staging rings. The garbage collector neither scans nor moves it, and
// it goes back to the system the moment it is freed.
//
// The nouns: a [Ledger] counts bytes by [Purpose]; a [Block] is anonymous memory
// counted in a ledger; a [Mapping] is a file mapped read-only, whose bytes are used in
// place; a [DirectFile] reads past the page cache where the system can; [Claim] tells other
// processes that a file is in use.
//
// The flow: the process makes one Ledger and passes it to whoever allocates. A block or
// mapping has one owner, whose release gives the memory back. Touching bytes after that is
// a fault, as with any unmapped address.
//
// This is the only home of mmap, madvise and O_DIRECT. It knows nothing of tensors,
// layers or checkpoints, and has no state of its own: no ledger is global. On systems
// without mmap blocks come from the Go heap, and [Map] fails with
// errors.ErrUnsupported.
package hostmem
