package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/heftai/heft/train/track"
)

// InitTrackers opens the trackers that Config.LogWith names, in the subfolder project of the
// logging folder. It passes the run's settings (numbers, booleans, strings; may be nil) to them and
// to Config.Trackers. Only the main process has trackers. On other ranks InitTrackers,
// [Accelerator.Log] and [Accelerator.EndTraining] do nothing.
func (a *Accelerator) InitTrackers(project string, settings track.Values) error {
	if !a.IsMainProcess() {
		return nil
	}
	names := a.cfg.LogWith
	if slices.Contains(names, "all") {
		names = track.Names()
	}
	dir := a.project.LoggingDir
	if dir == "" {
		dir = a.project.ProjectDir
	}
	if dir == "" && len(names) > 0 {
		return errors.New("train: trackers need a folder: Config.ProjectDir or Config.Project.LoggingDir")
	}
	var opened []track.Tracker
	closeAll := func() {
		for _, t := range opened {
			_ = t.Close() // after an error that is told
		}
	}
	for _, name := range names {
		t, err := track.Open(name, filepath.Join(dir, project))
		if err != nil {
			closeAll()
			return fmt.Errorf("train: %w", err)
		}
		opened = append(opened, t)
	}
	all := slices.Concat(a.trackers, opened, a.cfg.Trackers)
	if len(settings) > 0 {
		for _, t := range all[len(a.trackers):] {
			if err := t.Configure(settings); err != nil {
				closeAll()
				return fmt.Errorf("train: %s: %w", t.Name(), err)
			}
		}
	}
	a.trackers = all
	return nil
}

// Log passes the values of a step to all trackers, on the main process. Without trackers it does
// nothing.
func (a *Accelerator) Log(ctx context.Context, values track.Values, step int) error {
	for _, t := range a.trackers {
		if err := t.Log(values, step); err != nil {
			return fmt.Errorf("train: %s: %w", t.Name(), err)
		}
	}
	return ctx.Err()
}

// Tracker returns an open tracker by name, or nil if there is none, as on all ranks except the main
// one.
func (a *Accelerator) Tracker(name string) track.Tracker {
	for _, t := range a.trackers {
		if t.Name() == name {
			return t
		}
	}
	return nil
}

// EndTraining closes the trackers.
func (a *Accelerator) EndTraining() error {
	var all []error
	for _, t := range a.trackers {
		if err := t.Close(); err != nil {
			all = append(all, fmt.Errorf("train: %s: %w", t.Name(), err))
		}
	}
	a.trackers = nil
	return errors.Join(all...)
}
