package dispatch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/meta"
)

// A Routing is a recorded routing of a MoE model: which experts each pass requested. Plans
// predict the hit rate of the expert cache from it; see [Options].Routing. It is safe for
// concurrent use.
type Routing struct{ trace *policy.Trace }

// maxRecorded is the maximum number of requested experts in a recording: 8 MiB of memory, and a
// file of 2 MiB. A token of a model with 60 layers and 8 experts per layer takes 480.
const maxRecorded = 1 << 20

// RecordRouting starts to record the experts that passes request, up to a fixed number. It must
// not be called during a pass. It returns an error if the model has no routed experts.
func (m *Model) RecordRouting() error {
	layers := expertLayers(m.skeleton)
	if len(layers) == 0 {
		return errors.New("dispatch: recording the routing: this model has no routed experts")
	}
	m.recording = policy.NewRecorder(layers, maxRecorded)
	m.weights.RecordExperts(m.recording)
	return nil
}

// Routing ends the recording and returns it. It must not be called during a pass. It returns an
// error if nothing was recorded. It replays the recording about 30 times, which takes a second
// for a thousand tokens.
func (m *Model) Routing() (*Routing, error) {
	m.weights.RecordExperts(nil)
	if m.recording == nil {
		return nil, errors.New("dispatch: the routing was not recorded")
	}
	r := &Routing{trace: m.recording.Trace()}
	if len(r.trace.Steps) == 0 {
		return nil, errors.New("dispatch: no pass was recorded")
	}
	r.trace.Measure()
	return r, nil
}

// Save writes the routing to a file, atomically.
func (r *Routing) Save(path string) error {
	if err := atomicfile.WriteFile(path, r.trace.Encode()); err != nil {
		return fmt.Errorf("dispatch: saving a routing: %w", err)
	}
	return nil
}

// ReadRouting reads a file of [Routing.Save] for skeleton. It returns an error if the file is
// damaged or if the model that was recorded has other layers of experts.
func ReadRouting(path string, skeleton *meta.Model) (*Routing, error) {
	b, err := smallfile.Read(path, policy.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("dispatch: %w", err)
	}
	trace, err := policy.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("dispatch: %s: %w", path, err)
	}
	layers := expertLayers(skeleton)
	if len(layers) != len(trace.Layers) {
		return nil, fmt.Errorf("dispatch: %s: the routing has %d layers of experts, want %d", path, len(trace.Layers), len(layers))
	}
	for i, l := range layers {
		if n := trace.Layers[i].Segments; n != l.Segments {
			return nil, fmt.Errorf("dispatch: %s: layer %d of the routing has %d experts, want %d", path, i, n, l.Segments)
		}
	}
	trace.Layers = layers
	return &Routing{trace}, nil
}

// RoutingFile returns the path in folder of the stored routing of models with this shape.
func RoutingFile(folder string, skeleton *meta.Model) string {
	return filepath.Join(folder, "routing-"+shapeKey(skeleton)+".trace")
}

// shapeKey returns a name for models with the same parameters and shapes.
func shapeKey(skeleton *meta.Model) string {
	h := sha256.New()
	for path, p := range skeleton.Root.AllParams() {
		fmt.Fprintln(h, path, p.Shape)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Passes returns the number of passes that were recorded.
func (r *Routing) Passes() int { return len(r.trace.Steps) / len(r.trace.Layers) }

// RoutingHits holds, for one cache size, the share of requested experts that the cache holds
// under each policy.
type RoutingHits struct {
	CacheBytes int64   `json:"cache_bytes"`
	Share      float64 `json:"share"` // size of the cache as a share of all experts
	LRU        float64 `json:"lru"`
	Heft       float64 `json:"heft"`
	Belady     float64 `json:"belady"` // knows the future: no policy has more hits
}

// Hits replays the recording in a cache of the given size in bytes. It counts single tokens with
// a full cache: it skips prompts and the first quarter.
func (r *Routing) Hits(cacheBytes int64) RoutingHits {
	var bytes int64
	experts := 0
	for _, l := range r.trace.Layers {
		bytes += int64(l.Segments) * l.Size
		experts += l.Segments
	}
	share := min(1, float64(cacheBytes)/float64(bytes))
	slots := int(share * float64(experts))
	return RoutingHits{CacheBytes: cacheBytes, Share: share,
		LRU:    policy.Steady(r.trace, policy.LRU, slots),
		Heft:   policy.Steady(r.trace, policy.Forecast, slots),
		Belady: policy.Steady(r.trace, policy.Belady, slots)}
}

// routingShares are the cache sizes of [Routing.Curve].
var routingShares = []float64{0.02, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.5, 0.75, 1}

// Curve replays the recording in caches of several sizes.
func (r *Routing) Curve() []RoutingHits {
	var bytes int64
	for _, l := range r.trace.Layers {
		bytes += int64(l.Segments) * l.Size
	}
	var list []RoutingHits
	for _, share := range routingShares {
		list = append(list, r.Hits(int64(share*float64(bytes))))
	}
	return list
}

// expertLayers returns the layers of routed experts in the order in which a pass requests them,
// with the stored size of an expert.
func expertLayers(skeleton *meta.Model) (layers []policy.Layer) {
	for _, m := range skeleton.Root.Walk() {
		spec, ok := m.Spec.(*meta.MoESpec)
		if !ok {
			continue
		}
		for _, stack := range m.ExpertStacks(spec) {
			l := policy.Layer{Segments: spec.Count}
			for _, p := range stack.AllParams() {
				l.Size += p.Bytes() / int64(max(1, spec.Count))
			}
			layers = append(layers, l)
		}
	}
	return layers
}
