//go:build !unix

package repl

// onResize does nothing: this system does not report changes. The next line has the new size.
func onResize(func()) (stop func()) { return func() {} }
