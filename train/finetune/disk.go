package finetune

import (
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// checkpointBytes estimates the bytes of a checkpoint on disk: trained weights in float32, and the
// optimizer's state. An adapter is written twice, the second time for PEFT.
func (s *student) checkpointBytes(module tensor.Module, opt *optim.Descent) int64 {
	weight := int64(4)
	if s.LoRA != "" {
		weight *= 2
	}
	var total int64
	for _, p := range module.Parameters() {
		if p.Trainable {
			total += weight*int64(p.Len()) + opt.StateBytes(p.Shape()...)
		}
	}
	return total
}

// warnDisk warns on rank 0 if the output's file system has no room for a checkpoint. If the first
// checkpoint is written at the end of an epoch, the run would otherwise fail only after hours, and
// lose its progress.
func (s *student) warnDisk(checkpoint int64) {
	if s.SaveSteps < 0 || !s.acc.IsMainProcess() {
		return
	}
	if _, free, err := s.space(s.Output); err == nil && free < checkpoint {
		s.log.Warn("the disk has no room for a checkpoint: the run will fail when it saves one; free some space, use another --output, or --save-steps -1 for no checkpoints",
			"output", s.Output, "free", devicemap.FormatSize(free), "checkpoint", devicemap.FormatSize(checkpoint))
	}
}

// fullDisk adds a way out to an error caused by a full disk.
func (s *student) fullDisk(err error) error {
	if !atomicfile.IsFull(err) || s.Resume != "auto" {
		return err
	}
	return fmt.Errorf("%w; free some space: the same command then continues from the last checkpoint in %s, if there is one", err, s.Output)
}
