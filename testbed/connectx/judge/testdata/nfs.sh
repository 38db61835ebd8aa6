# Serves a directory by NFS over RDMA to the guest itself, and verifies what is written to it.
mkdir -p /tmp/export /tmp/import
mount -t tmpfs none /tmp/export
mount -t tmpfs none /var/lib/nfs
mount -t nfsd none /proc/fs/nfsd
touch /var/lib/nfs/etab
exportfs -i -o rw,no_root_squash,fsid=0,insecure,no_subtree_check 10.9.0.1:/tmp/export
rpc.mountd -N 3 -F 2>/tmp/mountd &
mountd=$!
rpc.nfsd -N 3 -G 10 -L 10 --rdma=20049 2
mount -t nfs4 -o vers=4.2,proto=rdma,port=20049 10.9.0.1:/ /tmp/import
grep -q '/tmp/import nfs4 .*proto=rdma' /proc/mounts

head -c 5000000 /dev/urandom >/tmp/file
cp /tmp/file /tmp/import/file
sync /tmp/import/file
cmp /tmp/file /tmp/export/file
head -c 3000000 /dev/urandom >/tmp/export/other
echo 3 >/proc/sys/vm/drop_caches
cmp /tmp/file /tmp/import/file
cmp /tmp/export/other /tmp/import/other

umount /tmp/import
rpc.nfsd 0
kill $mountd
wait $mountd || true
umount /proc/fs/nfsd /var/lib/nfs /tmp/export
echo verified
