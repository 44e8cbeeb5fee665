package dispatch

import (
	"github.com/heftai/heft/internal/kvstore"
)

// SlowReads has models that are opened from now on call before ahead of each read of a page.
func (s *KVStore) SlowReads(before func()) { s.slow = &slowReads{s.store, before} }

type slowReads struct {
	*kvstore.Store
	before func()
}

func (s *slowReads) Get(key kvstore.Key, depth int, value []byte) bool {
	s.before()
	return s.Store.Get(key, depth, value)
}
