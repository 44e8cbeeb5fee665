// Package dispatchtest helps tests of package dispatch, in all their packages, to place and run models and to compare what
// they answer.
package dispatchtest
