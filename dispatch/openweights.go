package dispatch

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/loader"
)

// Weights of the disk tier that are converted to a lossy format stream from a file of CacheDir.
// If there can be no such file, they cannot be read as stored instead, because answers would then
// depend on the placement. They count as weights of the cpu tier that were evicted: those that do
// not fit into the plan's memory are converted again in each pass.

// openWeights opens the weight store. If it cannot store converted weights of the disk tier, it
// opens one that converts them in each pass.
func (m *Model) openWeights(binding *loader.Binding, devices devicemap.Map, o residency.Options) (err error) {
	if _, bytes := m.settings.ConvertedOnDisk(m.skeleton, &m.plan); bytes > 0 {
		if o.NoSidecar = m.settings.ConvertsAgain(&m.plan); o.NoSidecar != nil {
			o.SidecarDir = ""
		}
	}
	m.weights, err = residency.New(m.skeleton.Root, units(m.program), binding, devices, o)
	var noSidecar *residency.SidecarError
	alone := m.settings
	alone.CacheDir = ""
	if errors.As(err, &noSidecar) && alone.ConvertsAgain(&m.plan) != nil {
		o.NoSidecar, o.SidecarDir = noSidecar, ""
		slog.Warn("weights that do not stay in memory are converted again in each pass, which is several times slower than reading converted ones", "reason", noSidecar)
		m.plan.Warnings = slices.Clone(m.plan.Warnings)
		alone.CountAgain(m.skeleton, &m.plan, noSidecar)
		m.weights, err = residency.New(m.skeleton.Root, units(m.program), binding, devices, o)
	}
	if err != nil {
		return err
	}
	m.limit.convertsAgain = o.NoSidecar != nil
	if r := m.settings.Routing; r != nil {
		m.weights.ExpectExperts(r)
	}
	return nil
}

// limitReconverted sets the minimum shares of memory. If converted weights cannot be stored on the
// disk, it also limits the memory for weights, and the plan's spare staging memory holds weights.
func (m *Model) limitReconverted() error {
	if m.limit.least = m.leastShares(); !m.limit.convertsAgain {
		return nil
	}
	m.plan.Devices = slices.Clone(m.plan.Devices)
	for i := range m.plan.Devices {
		if d := &m.plan.Devices[i]; d.Device == devicemap.CPU {
			spare := max(0, d.StagingBytes-m.weights.StagingBytes())
			d.StagingBytes -= spare
			d.WeightsBytes = max(d.WeightsBytes+spare, m.weights.LeastBudget())
		}
	}
	m.limit.least = m.leastShares()
	host := m.plan.Device(devicemap.CPU)
	if limit := host.LimitBytes; limit > 0 && !m.plan.BelowLeast && m.limit.least.sum(host) > limit {
		return fmt.Errorf("dispatch: converting the weights of a block in each pass takes %s, more than the limit of %s: %w",
			devicemap.FormatSize(m.limit.least.sum(host)), devicemap.FormatSize(limit), placement.ErrNoFolder)
	}
	m.weights.Budget(m.fullBudget())
	return nil
}

// fullBudget returns the budget for weights with the plan's whole memory.
func (m *Model) fullBudget() int64 {
	if m.limit.convertsAgain {
		return m.plan.Device(devicemap.CPU).WeightsBytes
	}
	return math.MaxInt64
}
