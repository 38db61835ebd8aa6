// Package providertest is the test suite that every provider passes. It checks what
// QPs, CQs and SRQs must do on every device. It runs on rings whose device is
// simulated in memory, and on real devices.
package providertest
