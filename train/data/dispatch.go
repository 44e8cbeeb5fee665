package data

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// dispatchRule configures how rank 0 distributes batches: one batch of the loader split into pieces
// (split), or as many batches as there are ranks, joined and cut again.
type dispatchRule struct {
	comm        Comm
	split, drop bool
}

// parcel is the message of rank 0 in one round: the samples of all ranks.
type parcel[T any] struct {
	Samples []T
	Some    bool // Samples are a round; with Stop, the last
	Stop    bool // rank 0 has read to the end
	Fault   string
}

// reader makes parcels on rank 0 and receives them on the other ranks.
type reader[T any] struct {
	dispatchRule
	next func() ([]T, error, bool)
}

func (r *reader[T]) read() parcel[T] {
	var p parcel[T]
	want := r.comm.Size()
	if r.split {
		want = 1
	}
	for range want {
		samples, err, ok := r.next()
		if err != nil {
			return parcel[T]{Stop: true, Fault: err.Error()}
		}
		if !ok {
			p.Stop = true
			break
		}
		p.Samples = append(p.Samples, samples...)
		p.Some = true
	}
	if p.Stop && r.drop {
		return parcel[T]{Stop: true}
	}
	return p
}

// fetch returns the next parcel on every rank.
func (r *reader[T]) fetch(ctx context.Context) (parcel[T], error) {
	var p parcel[T]
	root := r.comm.Rank() == 0
	var b bytes.Buffer
	if root {
		p = r.read()
		if r.comm.Size() > 1 {
			if err := gob.NewEncoder(&b).Encode(p); err != nil {
				return p, fmt.Errorf("data: samples cannot be dispatched: %w", err)
			}
		}
	}
	if r.comm.Size() > 1 {
		got, err := r.comm.Broadcast(ctx, 0, b.Bytes())
		if err != nil {
			return p, err
		}
		if !root {
			if err := gob.NewDecoder(bytes.NewReader(got)).Decode(&p); err != nil {
				return p, fmt.Errorf("data: samples from rank 0: %w", err)
			}
		}
	}
	if p.Fault != "" {
		return p, errors.New(p.Fault)
	}
	return p, nil
}

// dispatch walks an epoch. give receives this rank's part of each round, whether the round is the
// last, and how many samples of the round are not padding. It returns false if give has ended the
// walk.
func dispatch[T, B any](ctx context.Context, rule dispatchRule, batches iter.Seq2[[]T, error], collate Collate[T, B],
	give func(b B, last bool, samples int) bool) (bool, error) {
	r := &reader[T]{dispatchRule: rule}
	if rule.comm.Rank() == 0 {
		next, stop := iter.Pull2(batches)
		defer stop()
		r.next = next
	}
	ranks, rank := rule.comm.Size(), rule.comm.Rank()
	p, err := r.fetch(ctx)
	if err != nil {
		return false, err
	}
	if !p.Some {
		return false, ErrNothingToDispatch
	}
	first := slices.Clone(p.Samples[:min(ranks, len(p.Samples))])
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		var ahead parcel[T]
		last := p.Stop
		if !last {
			if ahead, err = r.fetch(ctx); err != nil {
				return false, err
			}
			last = ahead.Stop && !ahead.Some
		}
		samples, size := p.Samples, len(p.Samples)/ranks
		if last && !rule.drop && len(samples)%ranks != 0 {
			samples = append(slices.Clip(samples), first...)
			size++
		}
		lo := min(rank*size, len(samples))
		b, err := collate(samples[lo:min(lo+size, len(samples))])
		if err != nil {
			return false, err
		}
		if !give(b, last, len(p.Samples)) {
			return false, nil
		}
		if last {
			return true, nil
		}
		p = ahead
	}
}
