;;; The routes of the bench on Hunchentoot, with its own taskmaster: a thread for each connection.
(require :asdf)
(asdf:load-system :hunchentoot)

(defpackage :weftwork-bench (:use :cl) (:export #:serve))
(in-package :weftwork-bench)

(setf hunchentoot:*log-lisp-errors-p* nil)

(hunchentoot:define-easy-handler (health :uri "/health") ()
  (setf (hunchentoot:content-type*) "text/plain")
  "OK")

(hunchentoot:define-easy-handler (json :uri "/json") ()
  (setf (hunchentoot:content-type*) "application/json")
  (format nil "{~s:~s}" "message" "Hello, World!"))

(hunchentoot:define-easy-handler (echo :uri "/echo") ()
  (setf (hunchentoot:content-type*) "text/plain")
  (hunchentoot:raw-post-data :force-binary t))

(hunchentoot:define-easy-handler (slow :uri "/slow")
    ((ms :parameter-type 'integer :init-form 0) (us :parameter-type 'integer :init-form 0))
  (setf (hunchentoot:content-type*) "text/plain")
  ;; For nothing at all the kernel would still let its timer slack pass, 50 us.
  (when (plusp (+ ms us)) (sleep (+ (/ ms 1000) (/ us 1000000))))
  "blocked")

(defun serve (port)
  (hunchentoot:start
   (make-instance 'hunchentoot:easy-acceptor
                  :address "127.0.0.1"
                  :port port
                  :listen-backlog 4096
                  :access-log-destination nil
                  :message-log-destination nil
                  :taskmaster (make-instance 'hunchentoot:one-thread-per-connection-taskmaster
                                             :max-thread-count 512
                                             :max-accept-count 4096)))
  (loop (sleep 3600)))
