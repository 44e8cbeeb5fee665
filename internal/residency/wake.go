package residency

// A wake signals the computing goroutine that a read which it may wait for has ended.
type wake struct {
	signals chan struct{}
	rouse   func() // Options.Rouse, or nil
}

func newWake() wake { return wake{signals: make(chan struct{}, 1)} }

// signal ends a wait. The threads of the backend are woken first: the computing goroutine needs
// them as soon as it runs, and both take some tens of microseconds.
func (w *wake) signal() {
	if w.rouse != nil {
		w.rouse()
	}
	select {
	case w.signals <- struct{}{}:
	default:
	}
}

func (w *wake) wait() { <-w.signals }
