package main

import (
	"bytes"
	"net/netip"
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
	case "k8s.cni.cncf.io/v1 NetworkAttachmentDefinition":
		strict(new(network))
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
		networks := networksOf(t, b)
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
			testPlacement(t, name, pod.Spec)
			testNetworks(t, name, pod, networks)
		}
	}
	if kinds != 8 {
		t.Errorf("%d objects, want 8", kinds)
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
		testResources(t, file, c)
		testPrivileges(t, file, c, pod)
	}
}

// pluginResources returns the resources of device plugins that a container has.
func pluginResources(c corev1.Container) (names []string) {
	for name := range c.Resources.Limits {
		if strings.Contains(string(name), "/") {
			names = append(names, string(name))
		}
	}
	return names
}

// testResources checks that a container has requests and a limit of memory, and that the limit of a device plugin's
// resource is what is requested, as the API server demands.
func testResources(t *testing.T, file string, c corev1.Container) {
	t.Helper()
	r := c.Resources
	if r.Requests.Cpu().IsZero() || r.Requests.Memory().IsZero() || r.Limits.Memory().Cmp(*r.Requests.Memory()) < 0 {
		t.Errorf("%s: %s has the requests %v and limits %v", file, c.Name, r.Requests, r.Limits)
	}
	for _, name := range pluginResources(c) {
		limit, request := r.Limits[corev1.ResourceName(name)], r.Requests[corev1.ResourceName(name)]
		if limit.Cmp(request) != 0 || limit.Value() != 1 {
			t.Errorf("%s: %s requests %v of %s, with the limit %v", file, c.Name, &request, name, &limit)
		}
	}
}

// testPrivileges checks that a container is privileged only if it uses no device plugin, and otherwise has no more than
// IPC_LOCK and no file of the node.
func testPrivileges(t *testing.T, file string, c corev1.Container, pod corev1.PodSpec) {
	t.Helper()
	s := c.SecurityContext
	plugins := pluginResources(c)
	simple := file == "kubernetes/doctor.yaml" || file == "kubernetes/perftest.yaml"
	if simple {
		if s.Privileged == nil || !*s.Privileged || len(plugins) != 0 || len(c.VolumeMounts) != 1 {
			t.Errorf("%s: %s: %+v, %v", file, c.Name, s, plugins)
		}
		return
	}
	if s.Privileged != nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
		!slices.Equal(s.Capabilities.Add, []corev1.Capability{"IPC_LOCK"}) ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(plugins) != 1 || len(pod.Volumes) != 0 {
		t.Errorf("%s: %s: %+v, %v, %v", file, c.Name, s, plugins, pod.Volumes)
	}
}

// testPlacement checks that pods may run on nodes with GPUs, and run on Linux.
func testPlacement(t *testing.T, file string, pod corev1.PodSpec) {
	t.Helper()
	for _, key := range []string{"nvidia.com/gpu", "amd.com/gpu"} {
		if !slices.Contains(pod.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}) {
			t.Errorf("%s: the taint %s is not tolerated: %v", file, key, pod.Tolerations)
		}
	}
	if pod.NodeSelector["kubernetes.io/os"] != "linux" {
		t.Errorf("%s: node selector %v", file, pod.NodeSelector)
	}
}

// A network is an object of Multus, whose types no module offers: it has one field.
type network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Config string `json:"config"`
	} `json:"spec"`
}

// networksOf returns the networks of a file by their names.
func networksOf(t *testing.T, file []byte) map[string]network {
	t.Helper()
	all := make(map[string]network)
	for document := range bytes.SplitSeq(file, []byte("\n---\n")) {
		var n network
		if err := yaml.Unmarshal(document, &n); err != nil {
			t.Fatal(err)
		}
		if n.Kind == "NetworkAttachmentDefinition" {
			all[n.Name] = n
		}
	}
	return all
}

// testNetworks checks that the network to which a pod is attached is in the file, gives out the requested address, and
// uses the resource that the container requests.
func testNetworks(t *testing.T, file string, pod *corev1.PodTemplateSpec, networks map[string]network) {
	t.Helper()
	annotation := pod.Annotations["k8s.v1.cni.cncf.io/networks"]
	if annotation == "" {
		if len(networks) != 0 {
			t.Errorf("%s: a pod is not attached to %v", file, networks)
		}
		return
	}
	var attached []struct {
		Name string   `json:"name"`
		IPs  []string `json:"ips"`
	}
	if err := yaml.UnmarshalStrict([]byte(annotation), &attached); err != nil || len(attached) != 1 {
		t.Fatalf("%s: %q: %v", file, annotation, err)
	}
	a := attached[0]
	var config struct {
		CNIVersion   string          `json:"cniVersion"`
		Name         string          `json:"name"`
		Type         string          `json:"type"`
		Capabilities map[string]bool `json:"capabilities"`
		IPAM         struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	n := networks[a.Name]
	if err := yaml.UnmarshalStrict([]byte(n.Spec.Config), &config); err != nil || config.Name != a.Name ||
		config.CNIVersion == "" || config.Type != "sriov" || !config.Capabilities["ips"] || config.IPAM.Type != "static" {
		t.Errorf("%s: network %q: %+v, %v", file, a.Name, config, err)
	}
	if _, err := netip.ParsePrefix(a.IPs[0]); err != nil || len(a.IPs) != 1 {
		t.Errorf("%s: addresses %q, %v", file, a.IPs, err)
	}
	c := pod.Spec.Containers[0]
	if got := pluginResources(c); !slices.Equal(got, []string{n.Annotations["k8s.v1.cni.cncf.io/resourceName"]}) ||
		len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) != 0 || pod.Spec.HostNetwork {
		t.Errorf("%s: %s requests %v of network %q", file, c.Name, got, a.Name)
	}
}

// TestStrict checks that a misspelled field is found.
func TestStrict(t *testing.T) {
	if err := yaml.UnmarshalStrict([]byte("spec: {hostNetwrok: true}"), new(corev1.Pod)); err == nil {
		t.Error("an unknown field is accepted")
	}
}
