// Package record makes a backend reversible.
//
// A [Recorder] wraps a backend and passes operations on. While it records it remembers
// each with what its reverse needs, in the same method: the forward and the reverse of an
// operation stand side by side. [Recorder.Reverse] runs the record from its end.
//
// Gradients lie in shadows: each block of memory the recorder allocated may have a second
// one of its size, and the gradient of any view of the first is the same view of the
// second. Between passes shadows are 0, as the reverse of an operation clears the
// gradient of a result once it is used. What an operation overwrites although a reverse
// will read it is copied first, so rules may work in place.
//
// Gradients of weights lie where [Weights] says; a weight without one is frozen, in any
// dtype that the backend computes with. The floats that Route and Copy bring to the host
// and that ScatterAdd weighs by have gradients on the host.
//
// It knows neither modules, nor optimizers, nor where weights come from.
package record
