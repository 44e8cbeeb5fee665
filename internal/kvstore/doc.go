// Package kvstore keeps values of fixed content in a folder, such as pages of a KV cache, within a
// limit of size. Several processes may use one folder.
//
// A value is found by its [Key], which the caller derives from [Store.Derive], so that names of files
// reveal nothing. [Store.Offer] queues a value for writing and never waits: a full queue drops it. One
// goroutine writes. [Store.Get] reads a value and checks its authentication code. A file that is
// damaged, truncated, of another key or not a regular file is as good as absent.
//
// # Files
//
// DIR/secret holds 32 random bytes. DIR/lock is locked while a process writes or evicts, and holds the
// size of all pages. DIR/pages/XX/NAME.kv is one value. All have the permissions 0600, folders 0700.
// A value is written under a temporary name and renamed, without syncing: a killed process leaves whole
// files, and the code reveals files that a power failure damaged. The operating system releases the
// lock of a process that ends in whatever way.
//
// # Limit
//
// Each writer counts a value before it writes, under the lock, so that the size of all pages stays
// within the limit of each process that writes. A writer that exceeds its limit evicts the values that
// were used least recently, down to nine tenths of it. The time of a file's modification is that of its
// last use, in seconds; among values of one second those of lower depth were used later.
package kvstore
