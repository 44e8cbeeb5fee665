package pressure

import (
	"context"
	"time"
)

// Watch reads until ctx ends and calls apply with each decision, from its own goroutine. The first
// decision comes with the first reading, at once. A reading that takes long delays the next.
func Watch(ctx context.Context, c *Controller, read func() Reading, apply func(Decision)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		d := c.Step(time.Now(), read())
		apply(d)
		timer.Reset(d.Next)
	}
}
