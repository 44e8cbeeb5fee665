package wire

import "context"

// Record is the data of a request that an endpoint adds to the access log. It is for use by the
// request's goroutine.
type Record struct {
	Counted                  bool // the request had tokens
	PromptTokens, Completion int
	Client                   string // the name of its API key
}

type recordKey struct{}

// WithRecord returns a context with a Record.
func WithRecord(ctx context.Context) (context.Context, *Record) {
	r := &Record{}
	return context.WithValue(ctx, recordKey{}, r), r
}

// RecordTokens adds tokens to the record of the request that ctx belongs to, if there is one.
func RecordTokens(ctx context.Context, prompt, completion int) {
	if r, ok := ctx.Value(recordKey{}).(*Record); ok {
		r.Counted, r.PromptTokens, r.Completion = true, prompt, completion
	}
}

type ownerKey struct{}

// WithOwner returns a context for the requests of an owner, which is the hash of an API key.
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// OwnerOf returns the owner of the request that ctx belongs to, or "" if requests need no keys.
// Only the owner may read what a request stores.
func OwnerOf(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}

type backgroundKey struct{}

// WithBackground returns a context for requests that no client waits for, such as those of a batch.
// All other requests have a higher priority.
func WithBackground(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

// InBackground reports whether ctx is a context of WithBackground.
func InBackground(ctx context.Context) bool { return ctx.Value(backgroundKey{}) != nil }
