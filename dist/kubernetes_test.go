package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// decode decodes a document strictly: fields that the API does not have are errors. It returns the pods that the
// object creates, with the labels that select them.
func decode(t *testing.T, document []byte) (pod *corev1.PodTemplateSpec, selector map[string]string) {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		t.Fatal(err)
	}
	strict := func(into any) {
		t.Helper()
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 DaemonSet":
		var d appsv1.DaemonSet
		strict(&d)
		return &d.Spec.Template, d.Spec.Selector.MatchLabels
	case "apps/v1 Deployment":
		var d appsv1.Deployment
		strict(&d)
		return &d.Spec.Template, d.Spec.Selector.MatchLabels
	case "batch/v1 Job":
		var j batchv1.Job
		strict(&j)
		if p := j.Spec.Template.Spec.RestartPolicy; p != corev1.RestartPolicyOnFailure && p != corev1.RestartPolicyNever {
			t.Errorf("a job with the restart policy %q", p)
		}
		return &j.Spec.Template, nil
	case "v1 Service":
		var s corev1.Service
		strict(&s)
		return nil, nil
	}
	t.Errorf("%v is not an object that the examples use", kind)
	return nil, nil
}

// TestKubernetes checks the examples against the types of the API, and what the API server would refuse besides.
func TestKubernetes(t *testing.T) {
	names, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	kinds := 0
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(b, []byte("\n---\n")) {
			kinds++
			pod, selector := decode(t, document)
			if pod == nil {
				continue
			}
			for k, v := range selector {
				if pod.Labels[k] != v {
					t.Errorf("%s: the selector %s=%s does not match the pod's labels %v", name, k, v, pod.Labels)
				}
			}
			testPod(t, name, pod.Spec)
		}
	}
	if kinds != 4 {
		t.Errorf("%d objects, want 4", kinds)
	}
}

// testPod checks that containers run programs of the image, mount volumes that exist, and have different names.
func testPod(t *testing.T, file string, pod corev1.PodSpec) {
	t.Helper()
	seen := make(map[string]bool)
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if seen[c.Name] || c.Name == "" {
			t.Errorf("%s: two containers %q", file, c.Name)
		}
		seen[c.Name] = true
		if !strings.HasPrefix(c.Image, imageName+":") || len(c.Args) == 0 || !slices.Contains(programs, c.Args[0]) {
			t.Errorf("%s: %s runs %s %v", file, c.Name, c.Image, c.Args)
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s: %s mounts %s, which is not a volume", file, c.Name, m.Name)
			}
		}
	}
}

// TestStrict checks that a misspelled field is found.
func TestStrict(t *testing.T) {
	if err := yaml.UnmarshalStrict([]byte("spec: {hostNetwrok: true}"), new(corev1.Pod)); err == nil {
		t.Error("an unknown field is accepted")
	}
}
