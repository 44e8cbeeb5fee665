// Package dispatchtest helps the test packages of package dispatch to place and run models and to
// compare their answers.
package dispatchtest
