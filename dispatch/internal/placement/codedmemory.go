package placement

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

// planExact is [Planner.Plan] that codes all weights that get smaller. Weights on the disk are
// coded in a file of CacheDir. If there can be no such file, the plan counts them as stored, and
// codes only those in memory.
func (p *Planner) planExact(o Settings) (Placement, error) {
	all, err := p.planAs(o)
	return p.planKept(o, all, ignoreDisk(err))
}

// planKept finishes planExact for the result of planAs with o.
func (p *Planner) planKept(o Settings, all Placement, err error) (Placement, error) {
	if err != nil || len(o.codedOnDisk(p.skeleton, &all.Plan)) == 0 {
		return all, err
	}
	why := o.KeepsCoded()
	if why == nil {
		return all, nil
	}
	out, err := p.planInMemory(o)
	if err == nil && !out.Settings.codesAny(p.skeleton) {
		o.Coded, o.Compress = false, CompressNone
		out, err = p.planAs(o)
	}
	if err == nil {
		out.Plan.Warnings = append(out.Plan.Warnings, fmt.Sprintf("weights on the disk are read as stored, because coded ones cannot be kept: %v", why))
	}
	return out, err
}

// planInMemory returns a plan that codes only weights in memory: those on the disk are read as
// stored, and no file is written. If all weights that could be coded are on the disk, it codes none;
// see codesAny.
func (p *Planner) planInMemory(o Settings) (Placement, error) {
	o.InMemory = true
	return p.planAs(o)
}

// codesAny reports whether weights are coded with o: those that may be, or, in the options that a
// plan returned, those that it codes.
func (o *Settings) codesAny(skeleton *meta.Model) bool { return len(o.codedBytes(skeleton)) > 0 }

// StreamedAs returns the sizes of weights that are also converted when they stream. loaded has the
// sizes of weights that are converted in memory.
func (o *Settings) StreamedAs(loaded map[*meta.Param]int64) map[*meta.Param]int64 {
	if o.InMemory {
		return nil
	}
	return loaded
}

// storedBytes returns the sizes on the disk of the weights in loaded if these are converted only in
// memory, or nil; see [devicemap.Policy.Streamed].
func (o *Settings) storedBytes(loaded map[*meta.Param]int64) map[*meta.Param]int64 {
	if !o.InMemory {
		return nil
	}
	stored := make(map[*meta.Param]int64, len(loaded))
	for p := range loaded {
		stored[p] = p.Bytes()
	}
	return stored
}

// ignoreDisk returns err, or nil if err says that there is no folder for coded weights on the
// disk.
func ignoreDisk(err error) error {
	var folder *ConversionError
	if errors.As(err, &folder) && folder.Device == devicemap.Disk {
		return nil
	}
	return err
}

// codedOnDisk returns the parameters of a plan that are coded and on the disk.
func (o *Settings) codedOnDisk(skeleton *meta.Model, plan *devicemap.Plan) map[*meta.Param]bool {
	coded, out := o.codedBytes(skeleton), map[*meta.Param]bool{}
	for path, p := range skeleton.Root.AllParams() {
		if device, ok := plan.Map.Device(path); coded[p] > 0 && (!ok || device == devicemap.Disk) {
			out[p] = true
		}
	}
	return out
}

// KeepsCoded returns nil if, as far as a plan can tell, coded weights can be stored in CacheDir.
func (o *Settings) KeepsCoded() error {
	if o.CacheDir == "" {
		return errors.New("no cache folder: set --cache-dir")
	}
	if o.canKeep == nil {
		return nil // the checkpoint is not known
	}
	if err := o.canKeep(); err != nil {
		return fmt.Errorf("%w: free space there, or use another --cache-dir", err)
	}
	return nil
}

// leaveStored removes from coded the parameters that a plan counts as stored.
func (o *Settings) leaveStored(coded map[*meta.Param]int64) {
	for p := range o.asStored {
		delete(coded, p)
	}
}
