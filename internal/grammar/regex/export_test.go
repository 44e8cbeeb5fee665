package regex

// Split makes parts of more than size steps programs instead of automata until the result is called.
func Split(size int) (restore func()) {
	before := fewParts
	fewParts = size
	return func() { fewParts = before }
}
