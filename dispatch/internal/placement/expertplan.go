package placement

import (
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
)

// usualCrossing is the assumed time, in seconds, of copying a few rows between a GPU and the host
// where it was not measured.
const usualCrossing = 25e-6

// diskCost is the assumed cost of a disk byte relative to a byte of host memory, for comparing
// plans.
const diskCost = 10

// chooseExperts returns the better of two plans for a generated token. The first places whole
// blocks on GPUs. The second places dense weights on GPUs before any routed expert: more of what
// each token reads is on GPUs, and experts go wherever there is memory. In the second, hidden
// states are copied in each block whose experts are elsewhere.
func (g *gpuPlacer) chooseExperts() (devicemap.Plan, error) {
	apart, err := g.solve(false)
	if err != nil {
		return apart, err
	}
	a := g.tokenCost(&apart)
	if a.divided == 0 {
		return apart, nil
	}
	whole, err := g.solve(true)
	if err != nil {
		return apart, nil // no place for whole blocks
	}
	target, _ := streamTarget(&apart)
	b := g.tokenCost(&whole)
	better := a.host + diskCost*a.disk - b.host - diskCost*b.disk
	seconds := float64(a.crossings-b.crossings) * usualCrossing
	if rates := g.rates(target, g.o); rates.Memory > 0 {
		if rates.Crossing > 0 {
			seconds = float64(a.crossings-b.crossings) * rates.Crossing
		}
		if better/rates.Memory+seconds > 0 {
			whole.ExpertPlacement = fmt.Sprintf("blocks stay whole: with experts apart a token would read %s less of the cpu and the disk, and hidden states would cross %d times more",
				devicemap.FormatSize(int64(b.host+b.disk-a.host-a.disk)), a.crossings-b.crossings)
			return whole, nil
		}
	} else if better > 0 {
		return whole, nil
	}
	apart.ExpertPlacement = fmt.Sprintf("blocks that run on GPUs without all of their routed experts: %d; a token reads %s of the cpu and the disk, and would read %s if blocks stayed whole",
		a.divided, devicemap.FormatSize(int64(a.host+a.disk)), devicemap.FormatSize(int64(b.host+b.disk)))
	return apart, nil
}

// rates returns the measured rates; see the method pace of Settings.
func (p *placer) rates(target devicemap.Device, o *Settings) *pace {
	if p.pace == nil {
		pace := o.pace(target)
		p.pace = &pace
	}
	return p.pace
}

// tokenCost is the cost of a generated token under a plan, without what GPUs read.
type tokenCost struct {
	host, disk float64 // bytes of weights
	crossings  int     // of hidden states
	divided    int     // blocks with experts elsewhere
}

// tokenCost returns the cost of a plan. A hidden state is copied where the next unit is on
// another device. In a block on a GPU it is also copied to and from each other device that holds
// some of its experts.
func (p *placer) tokenCost(plan *devicemap.Plan) (c tokenCost) {
	c.host, c.disk = float64(plan.TokenReads(devicemap.CPU)), float64(plan.TokenReads(devicemap.Disk))
	devices := plan.Map.Devices()
	var before devicemap.Device
	for i, bytes := range bytesOfUnits(p.skeleton.Root, p.program, plan.Map) {
		home := bytes.home(devices)
		if !gpus.Is(home) {
			home = devicemap.CPU
		}
		if i > 0 && home != before {
			c.crossings++
		}
		before = home
		delete(bytes.experts, home)
		if gpus.Is(home) && len(bytes.experts) > 0 {
			c.divided++
			c.crossings += 2 * len(bytes.experts)
		}
	}
	return c
}
