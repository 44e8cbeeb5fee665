package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// A stepper generates tokens for a batch of sequences.
type stepper struct {
	batch  *dispatch.Batch
	rng    *rand.Rand
	vocab  int
	choose bool // the model chooses tokens; otherwise they are random
}

// step runs a pass and chooses the next tokens.
func (s *stepper) step(ctx context.Context, m *dispatch.Model) error {
	logits, err := m.Forward(ctx, s.batch)
	if err != nil {
		return err
	}
	for i := range s.batch.Rows {
		next := int32(s.rng.IntN(s.vocab))
		if s.choose {
			_, row := logits.Row(i)
			next = draw(row, s.rng)
		}
		s.batch.Rows[i].Tokens[0] = next
	}
	return nil
}

// draw draws a token from the distribution given by logits.
func draw(logits []float32, rng *rand.Rand) int32 {
	most := float32(math.Inf(-1))
	for _, v := range logits {
		most = max(most, v)
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v - most))
	}
	left := rng.Float64() * sum
	for i, v := range logits {
		if left -= math.Exp(float64(v - most)); left <= 0 {
			return int32(i)
		}
	}
	return int32(len(logits) - 1)
}

// saveTrace writes the recorded routing to path, and to folder for later plans. It returns the hits
// of a replay with a cache of the given bytes.
func saveTrace(m *dispatch.Model, path, folder string, bytes int64) (*dispatch.RoutingHits, error) {
	routing, err := m.Routing()
	if err != nil {
		return nil, err
	}
	hits := routing.Hits(bytes)
	return &hits, keepTrace(m, routing, path, folder)
}

// keepTrace writes a routing to path and, unless it is "", to folder.
func keepTrace(m *dispatch.Model, routing *dispatch.Routing, path, folder string) error {
	if err := routing.Save(path); err != nil || folder == "" {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return routing.Save(dispatch.RoutingFile(folder, m.Skeleton()))
}

// readRouting reads a routing for a plan. If the file is damaged, it returns a warning.
func readRouting(path string, skeleton *meta.Model) (routing *dispatch.Routing, warning string) {
	routing, err := dispatch.ReadRouting(path, skeleton)
	if err != nil {
		return nil, ignoredRouting(err)
	}
	return routing, ""
}

func ignoredRouting(err error) string { return fmt.Sprintf("ignoring the routing trace: %v", err) }

// addKept adds to o what earlier runs have stored for models of this shape: the routing that serving,
// or bench --trace, has recorded, and the hit rates of the expert cache. It returns why a file is
// ignored.
func addKept(cache string, skeleton *meta.Model, o *dispatch.Options) (ignored []string) {
	folder := measurementsDir(cache)
	if folder == "" {
		return nil
	}
	var err error
	if o.Routing, err = dispatch.ReadRouting(dispatch.RoutingFile(folder, skeleton), skeleton); err != nil && !errors.Is(err, fs.ErrNotExist) {
		ignored = append(ignored, ignoredRouting(err))
	}
	if o.ExpertHits, err = dispatch.ReadExpertHits(dispatch.ExpertHitsFile(folder, skeleton)); err != nil {
		ignored = append(ignored, fmt.Sprintf("ignoring the measured hits of experts: %v", err))
	}
	return ignored
}

// useKept is like addKept, but logs what is ignored.
func useKept(cache string, skeleton *meta.Model, o *dispatch.Options) {
	for _, warning := range addKept(cache, skeleton, o) {
		slog.Warn(warning)
	}
}

// hitsTable formats the hits of a routing by the size of the cache.
func hitsTable(routing *dispatch.Routing, curve []dispatch.RoutingHits) string {
	if len(curve) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nshare of the experts that one token requests which a filled cache holds (%d recorded passes):\n", routing.Passes())
	fmt.Fprintf(&b, "%10s %8s %8s %8s %8s\n", "cache", "of all", "LRU", "Heft", "Belady")
	for _, h := range curve {
		fmt.Fprintf(&b, "%10s %6.1f %% %6.1f %% %6.1f %% %6.1f %%\n", devicemap.FormatSize(h.CacheBytes), 100*h.Share, 100*h.LRU, 100*h.Heft, 100*h.Belady)
	}
	return b.String()
}
