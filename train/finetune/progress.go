package finetune

import (
	"context"
	"io"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/track"
)

// showProgress is like train.ShowProgress, with the unit of a method.
func showProgress(to io.Writer, unit string) train.Callback {
	p := track.NewProgress(to, track.ProgressOptions{})
	return train.CallbackFunc(func(_ context.Context, m *train.Moment) error {
		switch m.Event {
		case train.TrainBegin:
			p = track.NewProgress(to, track.ProgressOptions{Total: m.State.MaxSteps, Unit: unit, Terminal: track.IsTerminal(to)})
			p.Begin(m.State.GlobalStep)
		case train.StepEnd:
			p.Update(m.Result.GlobalStep+1, m.Result.Loss, m.Result.Items)
		case train.LogEvent:
			p.Clear() // before a line of the log
		case train.TrainEnd:
			p.Close()
		}
		return nil
	})
}
