package main

import (
	"context"

	"github.com/heftai/heft/internal/kernels/tune"
)

// tuneReads chooses the fastest way to read weights on this processor, as serve does. The first
// program on a machine measures that in about 30 ms; later ones read the file in the user's cache
// folder. Results do not depend on it.
func tuneReads(ctx context.Context, variant string, threads int) {
	(&tune.Store{Folder: tune.DefaultFolder()}).Ensure(ctx, tune.Options{Variant: variant, Threads: threads})
}
