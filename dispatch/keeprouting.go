package dispatch

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/meta"
)

const (
	// maxKept is the number of requested experts of a kept routing, in memory of 800 KiB: a thousand
	// tokens of a model with 16 layers that request 4 experts each.
	maxKept = 1 << 16
	// maxAtClose bounds what is evaluated while a model closes, to about a second.
	maxAtClose = 1 << 14
	// leastKept is the number of passes of single tokens that a routing must have to be kept.
	leastKept = 32
	// keepAgain is how long a kept routing lasts until a running model records another.
	keepAgain = time.Hour
)

// A routingKeeper records what a model routes and keeps it for later plans. Its methods do nothing on
// nil.
type routingKeeper struct {
	path     string
	skeleton *meta.Model
	recorder *policy.Recorder
	failed   func(error)
	attach   func(*policy.Recorder)
	saved    bool
	next     time.Time // when to record again; zero while recording
	saving   atomic.Bool
	done     sync.WaitGroup
}

// KeepRouting records from now on which experts passes request, and writes recordings to folder.
// Later plans predict the hits of the experts' cache from them; see [RoutingFile]. It writes a
// recording after about a thousand tokens, at most once an hour, and Close writes one if none was
// written. failed is called with the error of a write, from another goroutine. It does nothing for
// a model without routed experts. It must not be called during a pass, and not together with
// RecordRouting.
func (m *Model) KeepRouting(folder string, failed func(error)) {
	layers := expertLayers(m.skeleton)
	if len(layers) == 0 || folder == "" || m.keeper != nil {
		return
	}
	m.keeper = &routingKeeper{path: RoutingFile(folder, m.skeleton), skeleton: m.skeleton, failed: failed,
		recorder: policy.NewRecorder(layers, maxKept), attach: m.weights.RecordExperts}
	m.keeper.attach(m.keeper.recorder)
}

// passed is called after each pass. It starts to write a full recording.
func (k *routingKeeper) passed() {
	if k == nil || k.saving.Load() || !k.next.IsZero() && time.Now().Before(k.next) {
		return
	}
	if !k.next.IsZero() { // the last routing is old
		k.next = time.Time{}
		k.recorder.Reset()
		k.attach(k.recorder)
		return
	}
	if !k.recorder.Full() {
		return
	}
	k.attach(nil)
	k.next = time.Now().Add(keepAgain)
	k.saved = true
	k.saving.Store(true)
	k.done.Go(func() {
		defer k.saving.Store(false)
		k.save(k.recorder.Trace())
	})
}

// save writes a recording that has enough passes of single tokens.
func (k *routingKeeper) save(t *policy.Trace) {
	singles := 0
	for _, s := range t.Steps {
		if s.Layer == 0 && len(s.Segments) == firstTopK(k.skeleton) {
			singles++
		}
	}
	if singles < leastKept {
		return
	}
	t.Measure()
	if err := (&Routing{t}).write(k.path); err != nil && k.failed != nil {
		k.failed(err)
	}
}

// close writes what was recorded, if nothing was written yet. Nothing computes.
func (k *routingKeeper) close() {
	if k == nil {
		return
	}
	k.done.Wait()
	if k.saved {
		return
	}
	t, n := k.recorder.Trace(), 0
	for i, s := range t.Steps {
		if n += len(s.Segments); n > maxAtClose {
			t.Steps = t.Steps[:i]
			break
		}
	}
	k.save(t)
}

// firstTopK is the number of experts that a token selects in the first layer of experts.
func firstTopK(skeleton *meta.Model) int {
	for _, m := range skeleton.Root.Walk() {
		if spec, ok := m.Spec.(*meta.MoESpec); ok && m.Find(spec.Experts) != nil {
			return spec.TopK
		}
	}
	return 0
}

// write is Save into a folder that need not be there.
func (r *Routing) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("dispatch: keeping a routing: %w", err)
	}
	return r.Save(path)
}
