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
	// maxKept is the number of requested experts in a kept routing, which take 800 KiB of memory.
	// It is enough for a thousand tokens of a model with 16 layers that requests 4 experts in
	// each.
	maxKept = 1 << 16
	// maxAtClose bounds the requests that are evaluated while a model closes. They take about a
	// second.
	maxAtClose = 1 << 14
	// leastKept is the minimum number of single-token passes of a routing that is kept.
	leastKept = 32
	// keepAgain is the time until a running model records another routing.
	keepAgain = time.Hour
)

// A routingKeeper records a model's routing and stores it for later plans. Its methods do nothing
// on a nil pointer.
type routingKeeper struct {
	folder   string // of the recording and of measured hit rates
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

// KeepRouting starts to record the experts that passes request, and writes recordings to folder.
// Later plans predict the hit rate of the expert cache from them; see [RoutingFile]. A recording
// is written after about a thousand tokens, at most once an hour. Close writes one if none was
// written, and the measured hit rate; see [Model.SaveExpertHits]. failed is called from another goroutine with the error of a write. KeepRouting does
// nothing for a model without routed experts. It must not be called during a pass, nor used
// together with RecordRouting.
func (m *Model) KeepRouting(folder string, failed func(error)) {
	layers := expertLayers(m.skeleton)
	if len(layers) == 0 || folder == "" || m.keeper != nil {
		return
	}
	m.keeper = &routingKeeper{folder: folder, path: RoutingFile(folder, m.skeleton), skeleton: m.skeleton, failed: failed,
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

// save writes a recording if it has enough single-token passes.
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

// saveHits stores the measured hit rate of m, whose keeper k is.
func (k *routingKeeper) saveHits(m *Model) {
	if k == nil {
		return
	}
	if err := m.SaveExpertHits(k.folder); err != nil && k.failed != nil {
		k.failed(err)
	}
}

// close writes the recording if none was written yet. No pass may run.
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

// firstTopK returns the number of experts that a token selects in the first layer of experts.
func firstTopK(skeleton *meta.Model) int {
	for _, m := range skeleton.Root.Walk() {
		if spec, ok := m.Spec.(*meta.MoESpec); ok && m.Find(spec.Experts) != nil {
			return spec.TopK
		}
	}
	return 0
}

// write is Save that creates the folder if it is missing.
func (r *Routing) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("dispatch: keeping a routing: %w", err)
	}
	return r.Save(path)
}
