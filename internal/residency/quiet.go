package residency

import (
	"context"
	"time"
)

const (
	// quietFor is how long no pass must have acquired a unit before reads in the background go on.
	quietFor = time.Second
	// busyWaits bounds how long they wait, in multiples of the time that their last read took. Under passes
	// without end, 49 leaves them a fiftieth of the time.
	busyWaits = 49
)

// whenQuiet returns a function that paces reads in the background: call it before each read. It returns at once
// if no unit was acquired since the last call. Otherwise it waits until no unit was acquired for the time
// quiet, so that passes have the disk to themselves, but at most waits times as long as the last read took.
func (s *Store) whenQuiet(quiet time.Duration, waits int) func(context.Context) error {
	seen, last := s.acquired.Load(), time.Now()
	var timer *time.Timer // reused: waits must not allocate while tokens are generated
	return func(ctx context.Context) error {
		begin := time.Now()
		most := begin.Sub(last) * time.Duration(waits)
		defer func() { last = time.Now() }()
		for {
			now, left := s.acquired.Load(), most-time.Since(begin)
			if now == seen || left <= 0 {
				return ctx.Err()
			}
			seen = now
			if timer == nil {
				timer = time.NewTimer(min(quiet, left))
			} else {
				timer.Reset(min(quiet, left))
			}
			select {
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case <-timer.C:
			}
		}
	}
}
