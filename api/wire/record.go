package wire

import "context"

// Record is what an endpoint tells the access log about a request. It is for the request's
// goroutine.
type Record struct {
	Counted                  bool // the request had tokens
	PromptTokens, Completion int
}

type recordKey struct{}

// WithRecord returns a context with a Record.
func WithRecord(ctx context.Context) (context.Context, *Record) {
	r := &Record{}
	return context.WithValue(ctx, recordKey{}, r), r
}

// RecordTokens notes the tokens of the request that ctx belongs to, if a log wants them.
func RecordTokens(ctx context.Context, prompt, completion int) {
	if r, ok := ctx.Value(recordKey{}).(*Record); ok {
		*r = Record{true, prompt, completion}
	}
}
