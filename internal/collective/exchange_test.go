package collective

import (
	"context"
	"testing"
)

func TestExchangeGivesTheValuesThemselves(t *testing.T) {
	err := Launch(t.Context(), 3, func(ctx context.Context, c Comm) error {
		mine := []float32{float32(c.Rank())}
		all, err := Exchange(ctx, c, mine)
		if err != nil {
			return err
		}
		next := all[(c.Rank()+1)%3]
		next[0] += 10 // no other rank touches it
		if err := Settle(c); err != nil {
			return err
		}
		if want := float32(c.Rank() + 10); mine[0] != want {
			t.Errorf("rank %d: got %v, want %v", c.Rank(), mine[0], want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestExchangeNeedsOneProcess(t *testing.T) {
	var apart struct{ Comm }
	if Together(apart) || !Together(Alone()) {
		t.Error("Together: got true for a transport or false for a rank of this process")
	}
	if _, err := Exchange(t.Context(), apart, 1); err == nil {
		t.Error("got no error from ranks that are not in one process")
	}
}
