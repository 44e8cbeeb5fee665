package collective

import (
	"context"
	"errors"
)

// Together reports whether the ranks of c are in one process, so that they can use each other's
// memory; see [Exchange].
func Together(c Comm) bool {
	_, ok := c.(*local)
	return ok
}

var errApart = errors.New("collective: exchange: the ranks are not in one process")

// Exchange returns what every rank gave, in order of rank: the values themselves, not copies. It
// fails if the ranks are not in one process. A rank that changes what it gave, or what it got, must
// first let the others come to [Settle].
func Exchange[T any](ctx context.Context, c Comm, x T) ([]T, error) {
	l, ok := c.(*local)
	if !ok {
		return nil, errApart
	}
	offers, err := l.w.meet(ctx, l.rank, offer{key: key{what: "exchange"}, value: x}, false)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(offers))
	for r, o := range offers {
		out[r], _ = o.value.(T) // nil is the zero value
	}
	return out, nil
}

// Settle ends the use of what [Exchange] returned: it returns when all ranks have called it. Each
// rank that got a result of Exchange must call it, also after an error, and without waiting for
// another rank before: no context ends it.
func Settle(c Comm) error {
	l, ok := c.(*local)
	if !ok {
		return errApart
	}
	_, err := l.w.meet(context.Background(), l.rank, offer{key: key{what: "end of exchange"}}, true)
	return err
}
