package main

import (
	"log/slog"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
)

// takes returns the memory that l may use, including its tokenizer and its description but not the
// rows that count once.
func (l *loaded) takes() int64 {
	host := l.model.Plan().Device(devicemap.CPU)
	used := host.Used()
	if l.share > 0 {
		used = min(used, l.share)
	}
	return max(used-dispatch.RuntimeBytes-host.RequestBytes-l.adapters, 1)
}

// shrink reduces the loaded models to what they need while in use: it frees copies of weights, and
// the pages of the KV cache beyond one sequence. others is the memory that they took before, in
// bytes. It reports whether they take less now. Open calls it before it allocates the new model's
// memory.
func (f *fleet) shrink(others int64) bool {
	f.shares.Lock()
	defer f.shares.Unlock()
	f.mu.Lock()
	list := slices.Clone(f.loaded)
	f.mu.Unlock()
	for _, l := range list {
		share := l.model.SetMemoryShare(1)
		f.mu.Lock()
		l.share = share
		f.mu.Unlock()
	}
	left := f.others()
	if left >= others {
		return false
	}
	slog.Info("models in use shrink for another", "from", devicemap.FormatSize(others), "to", devicemap.FormatSize(left))
	return true
}

// widen returns free memory to models that have shrunk, starting with the first ones.
func (f *fleet) widen() {
	f.shares.Lock()
	defer f.shares.Unlock()
	limit := f.limitNow()
	rest := limit - f.once(limit) - f.others()
	f.mu.Lock()
	list := slices.Clone(f.loaded)
	f.mu.Unlock()
	for _, l := range list {
		if l.share == 0 || rest <= 0 {
			continue
		}
		used, before := l.model.Plan().Device(devicemap.CPU).Used(), l.takes()
		share := l.share + rest
		if share >= used {
			share = 0
		}
		share = l.model.SetMemoryShare(share)
		f.mu.Lock()
		l.share = share
		f.mu.Unlock()
		rest -= l.takes() - before
	}
}
